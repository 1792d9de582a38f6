"""The tests find out a store that is wrong: each mutation fails each test that it should.

PyG's own tests do not: without the permutation of edges, none of them fails.
"""

from dataclasses import replace

import pytest
import torch

from pyg_direct.stores import DirectFeatureStore, DirectGraphStore
from pyg_direct.tables import HostTable
from tests.loader import test_link, test_neighbor, test_rows
from tests.stores import test_graph
from tests.stores.contract import FeatureStoreContract

CPU = torch.device("cpu")
CONTRACT = FeatureStoreContract()


def _sort(rows):
    return rows[rows.reshape(len(rows), -1).double().sum(dim=1).argsort()]


MUTATIONS = {
    "reversed": lambda rows: rows.flip(0),
    "off by one": lambda rows: rows.roll(1, 0),
    "sorted": _sort,
    "last row for all": lambda rows: rows[-1:].expand_as(rows),
}


@pytest.fixture(params=MUTATIONS.values(), ids=MUTATIONS.keys())
def _wrong_rows(request, monkeypatch):
    right = HostTable._gather

    def gather(table, ids, out):
        right(table, ids, out)
        out.copy_(request.param(out.clone()))

    monkeypatch.setattr(HostTable, "_gather", gather)


@pytest.fixture
def _no_permutation(monkeypatch):
    right = DirectGraphStore._put_edge_index

    def put(store, edge_index, edge_attr):
        right(store, edge_index, edge_attr)
        key, topology = store._topologies.popitem()
        store._topologies[key] = replace(topology, perm=None)
        return True

    monkeypatch.setattr(DirectGraphStore, "_put_edge_index", put)


def _place(tensor):
    return tensor


@pytest.mark.usefixtures("_wrong_rows")
@pytest.mark.parametrize(
    "find_out",
    [
        lambda store: CONTRACT.test_get_tensor_returns_the_rows(store, _place, torch.float32, (3,)),
        lambda store: CONTRACT.test_get_tensor_returns_the_rows(store, _place, torch.int64, (3,)),
        lambda store: CONTRACT.test_multi_get_tensor(store, _place),
        lambda store: CONTRACT.test_put_tensor_by_index_puts_rows_where_ids_say(store, _place),
        lambda _: test_neighbor.test_batches_are_what_their_ids_say(CPU, {}),
        lambda _: test_neighbor.test_heterogeneous_batches_are_what_their_ids_say(CPU),
        lambda _: test_link.test_links_of_a_homogeneous_graph(CPU, None, 0),
        lambda _: test_rows.test_excluded_tensors_are_left_out_and_can_be_fetched(CPU, 2),
    ],
    ids=["float", "int", "several", "by index", "nodes", "types", "links", "fetched"],
)
def test_wrong_rows_are_found_out(find_out):
    with DirectFeatureStore("cpu") as store, pytest.raises(AssertionError):
        find_out(store)


@pytest.mark.usefixtures("_no_permutation")
@pytest.mark.parametrize(
    "find_out",
    [
        test_graph.test_put_and_get_edge_index_in_every_layout,
        lambda: test_neighbor.test_batches_are_what_their_ids_say(CPU, {}),
        lambda: test_neighbor.test_heterogeneous_batches_are_what_their_ids_say(CPU),
        lambda: test_link.test_links_of_a_homogeneous_graph(CPU, None, 0),
        lambda: test_link.test_links_of_a_heterogeneous_graph(CPU, None, 0),
    ],
    ids=["store", "nodes", "types", "links", "links of types"],
)
def test_a_dropped_permutation_is_found_out(find_out):
    with pytest.raises(AssertionError):
        find_out()
