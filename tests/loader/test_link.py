import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from pyg_direct import DirectNeighborSampler, LinkNeighborLoader, from_data
from tests.loader.graphs import (
    assert_batch,
    assert_hetero_batch,
    assert_same_batches,
    make_data,
    make_hetero_data,
)

WRITES = ("author", "writes", "paper")
DEPTHS = pytest.mark.parametrize("depth", [0, 2])


def _check_rows(batch, data):
    batch.seeds, batch.batch_size = batch.n_id[:0], 0
    assert_batch(batch, data)


@DEPTHS
@pytest.mark.parametrize("neg_sampling", [None, "binary", "triplet"])
def test_links_of_a_homogeneous_graph(device, neg_sampling, depth):
    data = make_data()
    loader = LinkNeighborLoader(
        from_data(data, device), [4, 3], batch_size=32, neg_sampling=neg_sampling, depth=depth
    )

    seen = []
    for batch in loader:
        batch = batch.cpu()
        links = data.edge_index[:, batch.input_id]
        if neg_sampling == "triplet":
            found = torch.stack([batch.src_index, batch.dst_pos_index])
            assert batch.dst_neg_index.shape == batch.input_id.shape
            assert "edge_label_index" not in batch
        else:
            found = batch.edge_label_index[:, : links.shape[1]]
        assert batch.n_id[found].equal(links)
        if neg_sampling == "binary":
            assert batch.edge_label.tolist() == [1] * links.shape[1] + [0] * links.shape[1]
        seen += batch.input_id.tolist()
        _check_rows(batch, data)
    assert seen == list(range(400))


@DEPTHS
@pytest.mark.parametrize("neg_sampling", [None, "binary", "triplet"])
def test_links_of_a_heterogeneous_graph(device, neg_sampling, depth):
    data = make_hetero_data()
    loader = LinkNeighborLoader(
        from_data(data, device), [4, 3], WRITES, batch_size=32, neg_sampling=neg_sampling,
        depth=depth,
    )  # fmt: skip

    for batch in loader:
        batch = batch.cpu()
        links = data[WRITES].edge_index[:, batch[WRITES].input_id]
        if neg_sampling == "triplet":
            found = batch["author"].src_index, batch["paper"].dst_pos_index
            assert batch["paper"].dst_neg_index.shape == batch[WRITES].input_id.shape
        else:
            found = batch[WRITES].edge_label_index[:, : links.shape[1]]
        ends = batch["author"].n_id[found[0]], batch["paper"].n_id[found[1]]
        assert torch.stack(ends).equal(links)
        assert_hetero_batch(batch, data)


def test_labels_and_negatives(device):
    data = make_data()
    labels = torch.arange(400) % 3
    loader = LinkNeighborLoader(
        from_data(data, device), [2], edge_label=labels, batch_size=50,
        neg_sampling=NegativeSampling("binary", amount=2),
    )  # fmt: skip

    for batch in loader:
        batch = batch.cpu()
        # PyG raises labels by one, since 0 tells negatives.
        assert batch.edge_label[:50].equal(labels[batch.input_id] + 1)
        assert batch.edge_label[50:].eq(0).all()
        assert batch.edge_label.numel() == 150


def test_time_of_links_bounds_what_is_sampled(device):
    data = make_data()
    data.time = torch.arange(60)
    time = data.edge_index.max(dim=0).values
    loader = LinkNeighborLoader(
        from_data(data, device), [4, 3], edge_label_time=time, time_attr="time", batch_size=20,
        neg_sampling="binary",
    )  # fmt: skip

    for batch in loader:
        batch = batch.cpu()
        assert batch.edge_label_time[:20].equal(time[batch.input_id])
        assert (batch.time <= batch.edge_label_time[:20][batch.batch]).all()


def test_the_same_seed_gives_the_same_batches_everywhere(device):
    data = make_data()
    options = {"batch_size": 30, "neg_sampling": "triplet", "seed": 4}
    on_cpu = LinkNeighborLoader(from_data(data, "cpu"), [4, 3], depth=0, **options)
    expected = [list(on_cpu) for _ in range(2)]
    stores = from_data(data, device)
    for how in ({"depth": 0}, {"depth": 2}, {"num_workers": 2}):
        loader = LinkNeighborLoader(stores, [4, 3], **options, **how)
        for epoch in expected:
            assert_same_batches(epoch, loader)


@pytest.mark.parametrize(
    "links",
    [
        torch.tensor([[3, 1], [2, 2]]),
        np.array([[3, 1], [2, 2]]),
        [[3, 1], [2, 2]],
        (torch.tensor([3, 1]), torch.tensor([2, 2])),
        (None, torch.tensor([[3, 1], [2, 2]])),
    ],
    ids=["tensor", "numpy", "lists", "pair", "None and tensor"],
)
def test_edge_label_index_takes_every_form(links):
    loader = LinkNeighborLoader(from_data(make_data(), "cpu"), [2], links, batch_size=2)

    (batch,) = loader

    assert batch.n_id[batch.edge_label_index].tolist() == [[3, 1], [2, 2]]


@pytest.mark.parametrize("links", [None, (None, None)], ids=str)
def test_edge_label_index_none_is_all_edges(links):
    data = make_data()

    (batch,) = LinkNeighborLoader(from_data(data, "cpu"), [2], links, batch_size=400)

    assert batch.n_id[batch.edge_label_index].equal(data.edge_index)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_edge_label_index_none_of_other_layouts(layout):
    edge_index = make_data().edge_index
    data = Data(edge_index=edge_index[:, edge_index[0 if layout == "csr" else 1].argsort()])
    ids = data.edge_index
    pointers = torch.zeros(61, dtype=torch.int64)
    pointers[1:] = torch.bincount(ids[0 if layout == "csr" else 1], minlength=60).cumsum(0)
    stores = from_data(make_data(), "cpu")
    stores[1].remove_edge_index(edge_type=None, layout="coo")
    pair = (pointers, ids[1]) if layout == "csr" else (ids[0], pointers)
    stores[1].put_edge_index(pair, edge_type=None, layout=layout, size=(60, 60))

    (batch,) = LinkNeighborLoader(stores, [2], batch_size=400)

    assert batch.n_id[batch.edge_label_index].equal(ids)


@pytest.mark.parametrize(
    "links",
    [
        WRITES,
        ("author", "paper"),
        (WRITES, None),
        (("author", "paper"), None),
        (WRITES, make_hetero_data()[WRITES].edge_index),
        (("author", "paper"), make_hetero_data()[WRITES].edge_index.tolist()),
    ],
    ids=["type", "short", "type and None", "short and None", "type and index", "short and list"],
)
def test_edge_label_index_takes_every_form_of_a_type(links):
    data = make_hetero_data()

    (batch,) = LinkNeighborLoader(from_data(data, "cpu"), [2], links, batch_size=150)

    row, col = batch[WRITES].edge_label_index
    found = torch.stack([batch["author"].n_id[row], batch["paper"].n_id[col]])
    assert found.equal(data[WRITES].edge_index)


def test_links_of_a_type_that_is_not_stored():
    links = (("venue", "likes", "author"), torch.tensor([[6, 0], [1, 29]]))
    (batch,) = LinkNeighborLoader(make_hetero_data(), [2], links, batch_size=2)

    row, col = batch["venue", "likes", "author"].edge_label_index.cpu()
    assert batch["venue"].n_id.cpu()[row].tolist() == [6, 0]
    assert batch["author"].n_id.cpu()[col].tolist() == [1, 29]


@pytest.mark.parametrize(
    ("links", "error", "message"),
    [
        (torch.tensor([[60], [0]]), IndexError, r"holds 60 as a node of type None"),
        (torch.tensor([[-1], [0]]), IndexError, r"holds -1"),
        (torch.rand(2, 2), TypeError, r"holds torch.float32"),
        (torch.arange(4), TypeError, r"expected None, an edge type, two rows"),
        ([[1, 2], [3]], TypeError, r"expected None, an edge type, two rows"),
        (WRITES, ValueError, r"all edges of type .*, which are not stored"),
    ],
    ids=["id", "negative", "float", "flat", "ragged", "type"],
)
def test_edge_label_index_is_checked(links, error, message):
    with pytest.raises(error, match=message):
        LinkNeighborLoader(from_data(make_data(), "cpu"), [2], links)


def test_edge_label_index_needs_a_type_if_heterogeneous():
    stores = from_data(make_hetero_data(), "cpu")

    with pytest.raises(ValueError, match="the graph is heterogeneous"):
        LinkNeighborLoader(stores, [2])
    with pytest.raises(ValueError, match=r"\('author', 'venue'\), which is 0 of the stored"):
        LinkNeighborLoader(stores, [2], ("author", "venue"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_label": torch.ones(3)}, "edge_label has 3 entries, expected 400"),
        ({"edge_label_time": [1], "time_attr": "time"}, "edge_label_time has 1 entries"),
        ({"neg_sampling": "binary", "neg_sampling_ratio": 2.0}, "neg_sampling_ratio is 2.0"),
        ({"depth": -1}, "depth is -1"),
        ({"edge_label": torch.ones(400), "neg_sampling": "triplet"}, "'edge_label' needs to be"),
    ],
    ids=["label", "time", "ratio", "depth", "triplet"],
)
def test_arguments_are_checked(options, message):
    data = make_data()
    data.time = torch.arange(60)

    with pytest.raises(ValueError, match=message):
        LinkNeighborLoader(from_data(data, "cpu"), [2], **options)


def test_ratio_is_the_old_name_of_negatives():
    (batch,) = LinkNeighborLoader(
        from_data(make_data(), "cpu"), [2], neg_sampling_ratio=0.5, batch_size=400
    )

    assert batch.edge_label.numel() == 600


def test_options_beside_a_sampler_are_refused():
    stores = from_data(make_data(), "cpu")
    sampler = DirectNeighborSampler(stores, [2], device="cpu")

    with pytest.raises(ValueError, match="replace is True, but neighbor_sampler is given"):
        LinkNeighborLoader(stores, [2], replace=True, neighbor_sampler=sampler)
    with pytest.raises(TypeError, match="neighbor_sampler is a list"):
        LinkNeighborLoader(stores, [2], neighbor_sampler=[2])


def test_links_of_a_graph_without_edges(device):
    links = torch.tensor([[3, 1], [2, 2]])

    (batch,) = LinkNeighborLoader(from_data(Data(num_nodes=9), device), [2], links, batch_size=2)

    assert batch.n_id[batch.edge_label_index].cpu().equal(links)


def test_links_between_types_that_no_edge_joins(device):
    data = HeteroData(paper={"num_nodes": 9})
    links = torch.tensor([[3, 1], [2, 2]])

    (batch,) = LinkNeighborLoader(
        from_data(data, device), [], (("paper", "paper"), links), batch_size=2
    )

    found = batch["paper", "to", "paper"].edge_label_index
    assert batch["paper"].n_id[found].cpu().equal(links)
