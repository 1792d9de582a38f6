import pytest
import torch

from pyg_direct.fullbatch.partition import balance_of, count_tiles, partition_nodes
from tests.fullbatch.graphs import power_law_edges


@pytest.mark.parametrize("order", ["natural", "random"])
@pytest.mark.parametrize(("num_nodes", "num_parts"), [(1, 1), (7, 3), (31, 4), (32, 4), (257, 8)])
def test_partition_nodes_owns_every_node_once(num_nodes, num_parts, order):
    partition = partition_nodes(num_nodes, num_parts, order=order)

    owned = torch.cat([partition.nodes(part) for part in range(num_parts)])
    assert torch.equal(owned.sort().values, torch.arange(num_nodes))
    assert torch.equal(partition.positions()[partition.order], torch.arange(num_nodes))
    assert sum(partition.sizes) == num_nodes
    assert max(partition.sizes) - min(partition.sizes) <= 1


def test_partition_nodes_is_the_same_for_one_seed():
    first, second, other = (partition_nodes(100, 3, seed=seed).order for seed in (1, 1, 2))

    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param({"num_parts": 6}, "num_parts = 6, expected 1 to num_nodes = 5", id="parts"),
        pytest.param({"num_parts": 2, "order": "metis"}, "order = 'metis'", id="order"),
    ],
)
def test_partition_nodes_rejects(args, message):
    with pytest.raises(ValueError, match=message):
        partition_nodes(5, **args)


def test_count_tiles_counts_targets_by_row():
    edge_index = torch.tensor([[0, 1, 3, 3], [3, 3, 3, 0]])
    partition = partition_nodes(4, 2, order="natural")

    counts = count_tiles(edge_index, partition)

    assert counts.tolist() == [[0, 1], [2, 1]]
    assert balance_of(counts).rows == 1.5
    assert balance_of(counts).tiles == 2.0


def test_random_order_balances_a_power_law_graph():
    edge_index = power_law_edges(20_000, 400_000)

    natural, random = (
        balance_of(count_tiles(edge_index, partition_nodes(20_000, 8, order=order)))
        for order in ("natural", "random")
    )

    assert natural.rows > 2.0
    assert random.rows < 1.05
    assert random.tiles < 1.1 < natural.tiles


def test_separate_permutations_change_only_the_tiles():
    """Plexus' permutations: a rank's work, a whole block row, stays what one permutation gives."""
    edge_index = power_law_edges(2000, 40_000)
    rows = partition_nodes(2000, 4, seed=1)
    columns = partition_nodes(2000, 4, seed=2)

    one = balance_of(count_tiles(edge_index, rows))
    two = balance_of(count_tiles(edge_index, rows, columns))

    assert two.rows == one.rows


def test_balance_of_no_edges_is_even():
    assert balance_of(torch.zeros(2, 2, dtype=torch.int64)).tiles == 1.0
