"""What a batch holds: exclude, fetch, ids that are not trusted, and rows that are wrong."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from pyg_direct import NeighborLoader, from_data
from pyg_direct.tables import HostTable
from tests.loader.graphs import assert_batch, assert_hetero_batch, make_data, make_hetero_data

WRITES = ("author", "writes", "paper")


@pytest.mark.parametrize("depth", [0, 2])
def test_excluded_tensors_are_left_out_and_can_be_fetched(device, depth):
    data = make_data()
    loader = NeighborLoader(
        from_data(data, device), [4, 3], batch_size=20, depth=depth,
        exclude=["x", "edge_attr", (None, "train_mask")],
    )  # fmt: skip

    for batch in loader:
        assert not {"x", "edge_attr", "train_mask"} & set(batch.keys())
        assert batch.num_nodes == batch.n_id.numel()

        assert loader.fetch(batch, "x", ((None, None), "edge_attr"), "train_mask") is batch
        batch.seeds = batch.input_id
        assert_batch(batch, data)


def test_exclude_and_fetch_by_group(device):
    data = make_hetero_data()
    loader = NeighborLoader(
        from_data(data, device), [4, 3], "paper", batch_size=20,
        exclude=[("paper", "x"), (WRITES, "weight")],
    )  # fmt: skip

    for batch in loader:
        assert "x" not in batch["paper"]
        assert "x" in batch["venue"]
        assert "weight" not in batch[WRITES]

        loader.fetch(batch, "x", (WRITES, "weight"))
        assert_hetero_batch(batch, data)


def test_fetch_checks_names_and_ids(device):
    loader = NeighborLoader(from_data(make_data(), device), [4], batch_size=20)
    batch = next(iter(loader))

    with pytest.raises(KeyError, match="no tensor 'z' to fetch"):
        loader.fetch(batch, "z")
    batch.n_id = torch.tensor([60], device=device)
    with pytest.raises(IndexError, match="id 60 is outside"):
        loader.fetch(batch, "x")


@pytest.mark.parametrize(
    ("exclude", "message"),
    [(["z"], r"exclude names \['z'\], which is not stored"), ("x", r"expected a list: \['x'\]")],
)
def test_exclude_is_checked(exclude, message):
    with pytest.raises(ValueError, match=message):
        NeighborLoader(from_data(make_data(), "cpu"), [2], exclude=exclude)


@pytest.mark.parametrize("depth", [0, 2])
def test_ids_of_transform_sampler_output_are_not_trusted(device, depth):
    def spoil(out):
        out.node[-1] = 60
        return out

    loader = NeighborLoader(
        from_data(make_data(), device), [4], batch_size=20, transform_sampler_output=spoil,
        depth=depth,
    )  # fmt: skip

    with pytest.raises(IndexError, match="id 60 is outside tensor 'x'"):
        next(iter(loader))


@pytest.mark.parametrize("depth", [0, 2])
def test_transform_sampler_output_may_reorder_nodes(device, depth):
    data = make_data()

    def reverse(out):
        out.node = out.node.flip(0)
        out.row, out.col = (out.node.numel() - 1 - ends for ends in (out.row, out.col))
        return out

    loader = NeighborLoader(
        from_data(data, device), [4, 3], batch_size=20, transform_sampler_output=reverse,
        depth=depth,
    )  # fmt: skip

    for batch in loader:
        batch = batch.cpu()
        assert batch.x.equal(data.x[batch.n_id])
        assert batch.n_id[batch.edge_index].equal(data.edge_index[:, batch.e_id])


def test_output_of_another_kind_is_refused():
    loader = NeighborLoader(
        from_data(make_data(), "cpu"), [2], transform_sampler_output=lambda out: out.node
    )

    with pytest.raises(TypeError, match="returned a Tensor, expected SamplerOutput"):
        next(iter(loader))


def test_tensors_shorter_than_their_group_are_refused():
    stores = from_data(make_data(), "cpu")
    stores[0][None, "graph_label", None] = torch.zeros(2)

    with pytest.raises(ValueError, match=r"'graph_label' has 2 rows, expected 60.*exclude="):
        NeighborLoader(stores, [2])

    assert "graph_label" not in next(iter(NeighborLoader(stores, [2], exclude=["graph_label"])))


def test_pairs_of_nodes_are_no_edge_tensors():
    data = make_data()
    data.edge_label_index = data.edge_index.clone()

    batch = next(iter(NeighborLoader(from_data(data, "cpu"), [2])))

    assert "edge_label_index" not in batch


def test_original_edges_of_a_sampler_are_kept_out_of_sight(device):
    """PyG's loaders keep them for ``edge_index`` of induced and bidirectional subgraphs."""

    def give_original(out):
        out.orig_row, out.orig_col = out.col, out.row
        return out

    loader = NeighborLoader(
        from_data(make_data(), device), [2], transform_sampler_output=give_original
    )

    batch = next(iter(loader))

    assert batch._orig_edge_index.equal(batch.edge_index.flip(0))
    assert "_orig_edge_index" not in batch


def test_a_batch_has_no_attribute_that_is_none(device):
    for data, input_nodes in ((make_data(), None), (make_hetero_data(), "paper")):
        batch = next(iter(NeighborLoader(from_data(data, device), [2], input_nodes)))

        assert all(value is not None for store in batch.stores for value in store.values())
        assert all("seed_time" not in store for store in batch.stores)


class _MyBatch(Data):
    @property
    def n_id(self):
        return self["n_id"]

    @n_id.setter
    def n_id(self, n_id):
        self["n_id"], self["is_set"] = n_id, True


class _MyHeteroBatch(HeteroData):
    pass


def test_custom_cls(device):
    loader = NeighborLoader(from_data(make_data(), device), [2], custom_cls=_MyBatch)
    batch = next(iter(loader))
    assert type(batch) is _MyBatch
    assert batch.is_set

    stores = from_data(make_hetero_data(), device)
    loader = NeighborLoader(stores, [2], "paper", custom_cls=_MyHeteroBatch)
    assert type(next(iter(loader))) is _MyHeteroBatch


@pytest.mark.parametrize(
    "mutate",
    [
        lambda rows: rows.flip(0),
        lambda rows: rows.roll(1, 0),
        lambda rows: rows[rows.flatten(1).sum(1).argsort()],
        lambda rows: rows * 1.0001,
    ],
    ids=["reversed", "off by one", "sorted", "not the bits"],
)
@pytest.mark.parametrize("name", ["x", "edge_attr"])
def test_a_wrong_table_is_found_out(monkeypatch, mutate, name):
    data = make_data()
    right = HostTable._gather

    def wrong(table, request, out):
        right(table, request, out)
        if f"'{name}'" in table.name:
            out.copy_(mutate(out.clone()))

    monkeypatch.setattr(HostTable, "_gather", wrong)
    batch = next(iter(NeighborLoader(from_data(data, "cpu"), [4, 3], batch_size=20)))
    batch.seeds = batch.input_id

    with pytest.raises(AssertionError):
        assert_batch(batch, data)


@st.composite
def _graphs(draw):
    num_nodes = draw(st.integers(1, 12))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=30))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    return Data(
        x=torch.randn(num_nodes, 3),
        y=torch.arange(num_nodes),
        train_mask=torch.rand(num_nodes) < 0.5,
        edge_index=edge_index,
        edge_attr=torch.randn(len(edges), 2),
    )


@settings(max_examples=40, deadline=None)
@given(data=_graphs(), depth=st.sampled_from([0, 1, 3]), disjoint=st.booleans(), size=st.data())
def test_batches_of_any_graph_are_what_their_ids_say(data, depth, disjoint, size):
    seeds = size.draw(st.lists(st.integers(0, data.num_nodes - 1), max_size=10))
    loader = NeighborLoader(
        from_data(data, "cpu"), [3, -1], seeds, batch_size=size.draw(st.integers(1, 4)),
        depth=depth, disjoint=disjoint,
    )  # fmt: skip

    seen = []
    for batch in loader:
        batch.seeds = torch.tensor(seeds)[batch.input_id]
        seen += batch.seeds.tolist()
        assert_batch(batch, data)
    assert seen == seeds
