import pytest
import torch

from pyg_direct.stores import Topology

ROW, COL = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 0, 1, 1, 0])


def edges_of(topology):
    """List (source, destination, edge id), by id."""
    col = torch.repeat_interleave(topology.colptr.diff())
    perm = torch.arange(col.numel()) if topology.perm is None else topology.perm
    return sorted(zip(perm.tolist(), topology.row.tolist(), col.tolist(), strict=True))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_from_layout_coo_keeps_edge_ids(dtype):
    topology = Topology.from_layout("coo", (ROW.to(dtype), COL.to(dtype)), size=(5, 3))

    assert edges_of(topology) == [(0, 0, 1), (1, 1, 0), (2, 2, 1), (3, 3, 1), (4, 0, 0)]
    assert (topology.size, topology.colptr.tolist()) == ((5, 3), [0, 2, 5, 5])
    row, col = topology.as_put()
    assert (row.tolist(), col.tolist(), row.dtype) == (ROW.tolist(), COL.tolist(), dtype)


def test_from_layout_csr_numbers_edges_in_row_order():
    rowptr, col = torch.tensor([0, 2, 3, 3]), torch.tensor([2, 0, 1])

    topology = Topology.from_layout("csr", (rowptr, col), is_square=True)

    assert edges_of(topology) == [(0, 0, 2), (1, 0, 0), (2, 1, 1)]
    assert [part.tolist() for part in topology.as_put()] == [rowptr.tolist(), col.tolist()]


def test_from_layout_csc_stays_in_place():
    row, colptr = torch.tensor([4, 1, 0]), torch.tensor([0, 1, 1, 3])

    topology = Topology.from_layout("csc", (row, colptr), is_square=True)

    assert topology.row.data_ptr() == row.data_ptr()
    assert (topology.perm, topology.size) == (None, (5, 5))
    assert topology.colptr.tolist() == [0, 1, 1, 3, 3, 3]


def test_from_layout_sorted_coo_needs_no_permutation():
    row, col = torch.tensor([2, 0, 1]), torch.tensor([0, 0, 2])

    assert Topology.from_layout("coo", (row, col), is_sorted=True).perm is None


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_from_layout_without_edges(layout):
    empty, pointers = torch.empty(0, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    first = pointers if layout == "csr" else empty
    second = pointers if layout == "csc" else empty

    topology = Topology.from_layout(layout, (first, second), size=(3, 3))

    assert topology.num_edges == 0
    assert topology.colptr.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("layout", "edge_index", "options", "message"),
    [
        ("coo", (ROW, COL), {"size": (3, 5)}, r"row holds the node id 3, expected ids in \[0, 3\)"),
        ("coo", (ROW, COL - 1), {}, r"col holds the node id -1"),
        ("coo", (ROW, COL[:4]), {}, r"5 sources and 4 destinations"),
        ("coo", (ROW, COL), {"is_sorted": True}, r"is_sorted is True"),
        ("coo", (ROW[None], COL), {}, r"edge_index\[0\] has shape \(1, 5\)"),
        ("csr", (torch.tensor([0, 3, 2, 5]), COL), {}, r"rowptr must rise from 0"),
        ("csc", (ROW, torch.tensor([1, 5])), {}, r"colptr must rise from 0"),
        ("csc", (ROW, torch.tensor([0, 5, 5])), {"size": (4, 1)}, r"at most size \+ 1 = 2"),
        ("csc", (ROW, torch.tensor([], dtype=torch.int64)), {}, r"colptr must rise"),
        ("dense", (ROW, COL), {}, r"layout is 'dense'"),
    ],
)
def test_from_layout_rejects(layout, edge_index, options, message):
    with pytest.raises(ValueError, match=message):
        Topology.from_layout(layout, edge_index, **options)


def test_from_layout_rejects_other_dtypes():
    with pytest.raises(TypeError, match=r"edge_index\[1\] holds torch.float32"):
        Topology.from_layout("coo", (ROW, COL.float()))
