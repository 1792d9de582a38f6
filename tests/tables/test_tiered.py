import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from pyg_direct.memory import MappedArray
from pyg_direct.tables import Request, TieredTable, plan_gather
from pyg_direct.tables.hot import num_hot_rows
from tests.stores.contract import DTYPES, assert_same_bits, random_rows

NUM_ROWS = 37


def make(tensor, device):
    return TieredTable(MappedArray(tensor), device, name="x")


@pytest.mark.parametrize("hot", [[], [36], range(0, 37, 2), range(37)], ids=len)
@pytest.mark.parametrize("shape", [(), (3,), (33,), (2, 3), (2, 16), (0,)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gather_gives_the_rows_wherever_they_stand(device, dtype, shape, hot):
    x = random_rows(dtype, NUM_ROWS, *shape)
    table = make(x.clone(), device)
    index = torch.tensor([36, 0, 5, 5, 17])

    table.set_hot(torch.tensor([*hot], dtype=torch.int64))

    assert table.num_hot == (0 if shape == (0,) else len(hot))
    expected = torch.stack([x[id_] for id_ in index])
    for ids in (index, Request(index.to(device), is_trusted=True)):
        assert_same_bits(table.gather(ids), expected)


def test_a_table_has_a_version_of_what_is_hot(device):
    table = make(torch.rand(NUM_ROWS, 3), device)
    versions = [table.version]

    for change in (lambda: table.set_hot(torch.arange(3)), table.refresh, table.count_hits):
        change()
        versions.append(table.version)

    assert len(set(versions)) == 4
    assert not table.is_repeatable
    table.count_hits(False)
    assert table.is_repeatable == (device.type == "cuda")


@pytest.mark.parametrize("budget_bytes", [0, 147, 148, 160, 172, 443, 444, 10**6])
def test_set_budget_keeps_to_it(device, budget_bytes):
    x = torch.rand(NUM_ROWS, 3)
    table = make(x, device)
    order = torch.randperm(NUM_ROWS)

    table.set_budget(budget_bytes, order)

    assert table.hot_bytes <= budget_bytes
    assert table.num_hot == num_hot_rows(budget_bytes, NUM_ROWS, 12)
    assert table.gather(torch.arange(NUM_ROWS)).cpu().equal(x)


def test_num_hot_rows_counts_the_slots():
    assert [num_hot_rows(each, 37, 12) for each in (0, 159, 160, 443, 444)] == [0, 0, 1, 24, 37]
    with pytest.raises(ValueError, match="budget_bytes is -1"):
        num_hot_rows(-1, 37, 12)


@pytest.mark.parametrize("hot", [range(0, 37, 2), range(37)], ids=len)
def test_scatter_keeps_both_copies_right(device, hot):
    x = torch.rand(NUM_ROWS, 3)
    table, expected = make(x, device), x.clone()
    table.set_hot(torch.tensor(hot))
    index, rows = torch.tensor([4, 5, 4, 36]), torch.rand(4, 3)

    table.scatter(index, rows)

    expected[[4, 5, 36]] = rows[[2, 1, 3]]
    assert table.gather(torch.arange(NUM_ROWS)).cpu().equal(expected)
    table.set_hot(torch.tensor([], dtype=torch.int64))
    assert table.gather(torch.arange(NUM_ROWS)).cpu().equal(expected)


def test_refresh_copies_what_was_written_in_place(device):
    x = torch.rand(NUM_ROWS, 3)
    table = make(x, device)
    table.set_hot(torch.tensor([3, 1]))

    x[3] = 7.0
    table.refresh()

    assert table.num_hot == 2
    assert table.hot_rows().cpu().equal(x[[1, 3]])
    assert table.gather(torch.tensor([3])).tolist() == [[7.0, 7, 7]]


@pytest.mark.parametrize(("hot", "num_hits"), [([], 0), ([3, 4], 3), (range(37), 4)])
def test_hits_are_counted_if_asked_for(device, hot, num_hits):
    table = make(torch.rand(NUM_ROWS, 3), device)
    table.set_hot(torch.tensor([*hot], dtype=torch.int64))
    assert table.hits.share == 0

    table.count_hits()
    table.gather(torch.tensor([3, 3, 4, 9]))

    assert (table.hits.num_rows, table.hits.num_hits) == (4, num_hits)
    table.count_hits(False)
    assert table.hits.num_rows == 0


def test_wrong_ids_are_refused(device):
    table = make(torch.rand(NUM_ROWS, 3), device)
    table.count_hits()

    for hot in ([1, 2], range(37)):
        table.set_hot(torch.tensor([*hot]))
        for wrong in (-1, 37):
            index = torch.tensor([1, wrong], device=device)
            with pytest.raises(IndexError, match=f"id {wrong} is outside x, which has 37 rows"):
                table.gather(index)
    with pytest.raises(IndexError, match="id 37 is outside x"):
        table.set_hot(torch.tensor([1, 37]))
    with pytest.raises(ValueError, match="ids of hot rows of x are 2, some more than once"):
        table.set_hot(torch.tensor([1, 1]))


def test_another_process_starts_without_hot_rows(device):
    x = torch.rand(NUM_ROWS, 3)
    table = make(x, device)
    table.set_hot(torch.tensor([3, 1]))

    copy = pickle.loads(pickle.dumps(table))

    assert copy.num_hot == 0
    assert copy.gather(torch.tensor([3, 4])).cpu().equal(x[[3, 4]])


def test_closed_table_refuses(device):
    table = make(torch.zeros(5, 2), device)
    table.set_hot(torch.tensor([1]))
    table.close()
    table.close()

    assert table.hot_bytes == 0
    for act in (table.gather, table.set_hot):
        with pytest.raises(ValueError, match="x is closed"):
            act(torch.tensor([1]))


def test_rows_on_a_file_that_is_read_only(device, tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "x.npy", rows)
    array = MappedArray.from_array(np.load(tmp_path / "x.npy", mmap_mode="r"))
    table = TieredTable(array, device, name="x")
    table.set_hot(torch.tensor([1, 2]))

    with pytest.raises(ValueError, match="read-only"):
        table.scatter(torch.tensor([1, 3]), torch.zeros(2, 3))

    np.testing.assert_array_equal(table.gather(torch.tensor([3, 1])).cpu(), rows[[3, 1]])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("gather"), st.lists(st.integers(0, 36), max_size=40)),
        st.tuples(st.just("scatter"), st.lists(st.integers(0, 36), max_size=10)),
        st.tuples(st.just("budget"), st.integers(0, 800)),
        st.tuples(st.just("hot"), st.sets(st.integers(0, 36))),
    ),
    max_size=12,
)


@given(steps=STEPS, row_bytes=st.sampled_from([1, 5, 12, 20]), seed=st.integers(0, 2**16))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_interleaved_steps_equal_a_plain_tensor(device, steps, row_bytes, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (NUM_ROWS, row_bytes), dtype=torch.uint8, generator=generator)
    table, plain = make(x.clone(), device), x.clone()

    for step, value in steps:
        if step == "budget":
            table.set_budget(value, torch.randperm(NUM_ROWS, generator=generator))
        elif step == "hot":
            table.set_hot(torch.tensor(sorted(value), dtype=torch.int64))
        else:
            index = torch.tensor(value, dtype=torch.int64)
            if step == "scatter":
                rows = torch.randint(
                    0, 256, (len(value), row_bytes), dtype=torch.uint8, generator=generator
                )
                table.scatter(index, rows)
                for row, id_ in zip(rows, value, strict=True):
                    plain[id_] = row
            else:
                assert table.gather(index).cpu().equal(plain[index])
    assert table.gather(torch.arange(NUM_ROWS)).cpu().equal(plain)


def test_plan_gather_with_few_misses():
    sizes = {"row_bytes": 512, "num_ids": 100_000, "num_rows": 2**24, "num_sms": 132}

    none, most = plan_gather(**sizes), plan_gather(**sizes, host_share=0.1)

    assert most.unordered_s < none.unordered_s
    in_order = [plan_gather(**sizes, is_sorted=True, host_share=share) for share in (1.0, 0.1)]
    assert in_order[0].num_warps < in_order[1].num_warps
    few = sizes | {"num_ids": 100}
    assert (plan_gather(**few).way, plan_gather(**few, host_share=0.5).way) == (
        "index_select",
        "as requested",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("row_bytes", [1, 31, 64, 128, 132, 400, 1172, 3072, 4100])
@pytest.mark.parametrize("max_sms", [None, 3])
@pytest.mark.parametrize("hot_share", [0.0, 0.3, 1.0])
def test_every_size_on_the_gpu(row_bytes, max_sms, hot_share):
    memory = torch.randint(0, 256, (20_000 * row_bytes + 4,), dtype=torch.uint8)
    x = memory[4:].view(20_000, row_bytes)
    table = TieredTable(MappedArray(x), torch.device("cuda", 0), max_sms=max_sms)
    table.set_hot(torch.randperm(20_000)[: int(20_000 * hot_share)])
    index = torch.randint(0, 20_000, (50_003,), device="cuda")

    for request in (Request(index, is_trusted=True), Request(index.int())):
        out = torch.full((50_003, row_bytes), 0xAA, dtype=torch.uint8, device="cuda")
        assert table.gather(request, out).cpu().equal(x[index.cpu()])


@pytest.mark.gpu
def test_plan_says_that_nothing_crosses_the_bus():
    table = make(torch.rand(NUM_ROWS, 4), torch.device("cuda", 0))

    table.set_hot(torch.arange(NUM_ROWS))

    assert table.plan(5).way == "on device"
    table.set_hot(torch.arange(5))
    assert table.plan(5).way == "as requested"


@pytest.mark.gpu
def test_budget_changes_while_streams_read():
    x = torch.rand(100_000, 33)
    table, device_x = make(x, torch.device("cuda", 0)), x.cuda()
    index = torch.randint(0, 100_000, (50_000,), device="cuda")
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()

    rows = []
    for turn in range(12):
        with torch.cuda.stream(streams[turn % 4]):
            rows.append(table.gather(Request(index, is_trusted=True)))
        table.set_hot(torch.randperm(100_000)[: turn * 9_000])
        # What the old copies stood on is written over as soon as the allocator may.
        torch.full((turn * 9_000, 33), -1.0, device="cuda")
    torch.cuda.synchronize()

    assert all(each.equal(device_x[index]) for each in rows)


@pytest.mark.gpu
def test_out_of_memory_leaves_every_row(monkeypatch):
    x = torch.rand(1000, 33)
    table = make(x, torch.device("cuda", 0))
    table.set_hot(torch.arange(10))

    def refuse(*_, **__):
        raise torch.OutOfMemoryError("no")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "full", refuse)
        with pytest.raises(torch.OutOfMemoryError):
            table.set_hot(torch.arange(500))

    assert table.num_hot == 0
    assert table.gather(torch.arange(1000)).cpu().equal(x)
