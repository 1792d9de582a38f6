import pytest
import torch

from pyg_direct.kernels.random import batch_key, batch_keys
from pyg_direct.sampler.layout import BatchLayout


def test_unpack_returns_what_was_packed():
    layout = BatchLayout(
        num_seeds=(("a", 4), ("b", 0), ("c", 2)), num_hops=2, num_relations=3, is_ranked=True,
        num_carried=2,
    )  # fmt: skip
    seeds = {"c": torch.tensor([9, 8]), "a": torch.tensor([5, 3, 5, 1])}

    words = layout.pack(77, seeds, torch.tensor([6, 0], dtype=torch.int32))
    key, totals, unpacked, carried = layout.unpack(words)

    assert words.numel() == layout.num_words
    assert key.tolist() == [77]
    assert carried.tolist() == [6, 0]
    assert totals.numel() == layout.num_totals == 3 * 4 + 3 * 2
    assert totals.nonzero().view(-1).tolist() == [1, 9]
    assert totals[[1, 9]].tolist() == [4, 2]
    assert unpacked["a"].node.tolist() == [5, 3, 5, 1]
    assert unpacked["a"].unique.tolist() == [1, 3, 5, 5]
    assert unpacked["a"].first.tolist() == [3, 1, 0, 0]
    assert unpacked["b"].node.numel() == 0
    assert unpacked["c"].unique.tolist() == [8, 9]


def test_pack_without_ranks_holds_seeds_alone():
    layout = BatchLayout(num_seeds=((None, 3),), num_hops=1, num_relations=1, is_ranked=False)

    words = layout.pack(1, {None: torch.tensor([2, 2, 0])})

    assert words[-3:].tolist() == [2, 2, 0]
    assert words.numel() == 1 + layout.num_totals + 3


@pytest.mark.parametrize("size", [1, 2, 31, 64])
@pytest.mark.parametrize("highest", [1, 5, 1 << 40])
def test_ranks_of_many_seeds(size, highest):
    ids = torch.randint(highest, (size,))
    layout = BatchLayout(num_seeds=((None, size),), num_hops=1, num_relations=1, is_ranked=True)

    _, _, seeds, _ = layout.unpack(layout.pack(1, {None: ids}))

    unique = ids.unique().tolist()
    first = [ids.tolist().index(each) for each in unique]
    padding = size - len(unique)
    assert seeds[None].unique.tolist() == unique + unique[-1:] * padding
    assert seeds[None].first.tolist() == first + first[-1:] * padding


@pytest.mark.parametrize("is_ranked", [True, False])
@pytest.mark.parametrize("num_seeds", [((None, 5),), (("a", 0), ("b", 7)), (("a", 4), ("b", 6))])
def test_batches_packed_at_once_are_those_packed_one_by_one(num_seeds, is_ranked):
    layout = BatchLayout(
        num_seeds=num_seeds, num_hops=2, num_relations=3, is_ranked=is_ranked, num_carried=3
    )
    generator = torch.Generator().manual_seed(3)
    seeds = {kind: torch.randint(2**40, (4, size), generator=generator) for kind, size in num_seeds}
    for ids in seeds.values():
        ids[1, 3:4] = ids[1, :1]
    carried = torch.randint(99, (4, 3), generator=generator)

    words = layout.pack_all(
        batch_keys(7, 2**33, 4), {kind: ids.numpy() for kind, ids in seeds.items()}, carried.numpy()
    )

    for place in range(4):
        one = {kind: ids[place] for kind, ids in seeds.items()}
        expected = layout.pack(batch_key(7, 2**33 + place), one, carried[place])
        assert words[place].tolist() == expected.tolist()
