import pytest
import torch

from experiments.rmat_graph import _gather_ids, _scatter_ids, make_rmat

QUADRANTS = [0.57, 0.19, 0.19, 0.05]


def _edges(num_nodes, num_edges, device, quadrants=QUADRANTS):
    store = make_rmat(
        num_nodes=num_nodes, num_edges=num_edges, quadrants=quadrants, seed=3, device=device
    )
    topology = store.topology(None)
    column = torch.repeat_interleave(topology.colptr.diff())
    return _gather_ids(topology.row.long(), num_nodes), _gather_ids(column, num_nodes)


def test_make_rmat_fills_quadrants(device):
    row, column = _edges(1024, 200_000, device)

    assert row.numel() == pytest.approx(200_000, rel=0.01)
    for bit in (0, 5, 9):
        cells = ((row >> bit) & 1) * 2 + ((column >> bit) & 1)
        shares = torch.bincount(cells, minlength=4) / row.numel()
        # Degrees are rounded, and edges drawn: 3 standard deviations are 0.003.
        assert shares.tolist() == pytest.approx(QUADRANTS, abs=0.006)


def test_make_rmat_takes_any_number_of_nodes(device):
    row, column = _edges(777, 5_000, device)

    assert row.min() >= 0
    assert row.max() < 777
    assert column.max() < 777


def test_scatter_ids_is_one_to_one():
    ids = torch.arange(1000)

    scattered = _scatter_ids(ids, 1000)

    assert scattered.sort().values.equal(ids)
    assert _gather_ids(scattered, 1000).equal(ids)


def test_make_rmat_rejects_quadrants():
    with pytest.raises(ValueError, match="quadrants .* must be 4 probabilities"):
        _edges(10, 10, torch.device("cpu"), [0.5, 0.5, 0.5, 0.5])
