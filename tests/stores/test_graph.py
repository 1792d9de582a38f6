import pytest
import torch
from torch_geometric.data import EdgeAttr

from pyg_direct.stores import DirectGraphStore

ROW, COL = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 0, 1, 1, 0])
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def test_put_and_get_edge_index_in_every_layout():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=WRITES, layout="coo", size=(4, 2))
    pointers = torch.tensor([0, 2, 3])
    store.put_edge_index((pointers, ROW[:3]), edge_type=CITES, layout="csr", size=(2, 3))
    store.put_edge_index((ROW[:3], pointers), edge_type=CITES, layout="csc", size=(3, 2))

    def get(edge_type, layout):
        return [part.tolist() for part in store.get_edge_index(edge_type, layout)]

    assert get(WRITES, "coo") == [ROW.tolist(), COL.tolist()]
    assert get(CITES, "csr") == [[0, 2, 3], [0, 1, 2]]
    assert get(CITES, "csc") == [[0, 1, 2], [0, 2, 3]]
    with pytest.raises(KeyError, match="not found"):
        store.get_edge_index(WRITES, "csr")


def test_listing_is_fresh_and_sized():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=None, layout="coo")

    store.get_all_edge_attrs()[0].size = None

    (attr,) = store.get_all_edge_attrs()
    assert attr == EdgeAttr(None, "coo", False, (4, 4))


def test_csc_keeps_the_permutation_also_when_stored():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=None, layout="coo", size=(5, 5))

    store.csc(store=True)
    row, colptr, perm = store.csc()

    assert row.tolist() == ROW[perm].tolist()
    assert torch.repeat_interleave(colptr.diff()).tolist() == COL[perm].tolist()


def test_csc_by_edge_type():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=WRITES, layout="coo", size=(4, 2))
    store.put_edge_index((COL, COL), edge_type=CITES, layout="coo", size=(2, 2))

    row, colptr, perm = store.csc([CITES])

    assert list(row) == list(colptr) == list(perm) == [CITES]
    with pytest.raises(ValueError, match="are not stored"):
        store.csc([("author", "likes", "paper")])


def test_first_layout_of_a_type_is_what_is_sampled():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=None, layout="coo", size=(4, 4))
    store.put_edge_index((ROW[:2], torch.tensor([0, 1, 2, 2, 2])), edge_type=None, layout="csc")

    assert store.topology().num_edges == 5
    assert store.edge_types() == [None]


def test_num_nodes_is_the_largest_of_all_edge_types():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=WRITES, layout="coo", size=(4, 2))
    store.put_edge_index((COL, COL), edge_type=CITES, layout="coo", size=(7, 7))

    assert store.num_nodes() == {"author": 4, "paper": 7}


def test_missing_edges_name_what_is_stored():
    with pytest.raises(KeyError, match="stored"):
        DirectGraphStore().topology(WRITES)


def test_remove_edge_index():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=None, layout="coo")

    assert store.remove_edge_index(None, "coo")
    assert store.get_all_edge_attrs() == []


def test_put_num_nodes():
    store = DirectGraphStore()
    store.put_edge_index((ROW, COL), edge_type=WRITES, layout="coo", size=(4, 2))

    store.put_num_nodes(3, "venue")
    store.put_num_nodes(1, "author")

    assert store.num_nodes() == {"author": 4, "paper": 2, "venue": 3}
    with pytest.raises(ValueError, match="num_nodes of 'venue' is -1"):
        store.put_num_nodes(-1, "venue")
    with pytest.raises(ValueError, match="comes with its edges"):
        store.put_num_nodes(3, None)
