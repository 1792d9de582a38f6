import pytest
import torch

from pyg_direct import NeighborLoader, from_data
from tests.loader.graphs import make_data


@pytest.mark.parametrize("depth", [0, 2])
def test_stats_count_what_a_loop_did(device, depth):
    data = make_data()
    loader = NeighborLoader(
        from_data(data, device), [4, 3], batch_size=7, seed=5, depth=depth, exclude=["train_mask"]
    )

    epochs = [list(loader) for _ in range(2)]
    stats = loader.stats()

    assert [each.epoch for each in stats] == [0, 1]
    for batches, each in zip(epochs, stats, strict=True):
        num_nodes = sum(batch.num_nodes for batch in batches)
        num_edges = sum(batch.num_edges for batch in batches)
        assert each.num_batches == 9
        assert each.num_rows == 2 * num_nodes + num_edges
        assert each.host_bytes == (5 * 4 + 8) * num_nodes + 3 * 4 * num_edges
        assert each.gather_gb_per_s == pytest.approx(each.host_bytes / each.gather_s / 1e9)
        assert min(each.sample_s, each.gather_s, each.wait_s, each.train_s) > 0
        assert each.wait_s + each.train_s == pytest.approx(each.epoch_s, rel=0.2)
        assert 0 < each.idle_share < 1
        assert {span.stage for span in each.spans} == {"sample", "gather", "wait", "train"}
        assert all(0 <= span.start_s <= span.stop_s for span in each.spans)


def test_stats_of_a_loop_that_was_left_and_of_none(device):
    loader = NeighborLoader(from_data(make_data(), device), [4, 3], batch_size=7)
    assert loader.stats() == []

    next(iter(loader))

    (stats,) = loader.stats()
    assert stats.num_batches == 1
    assert stats.train_s == 0


def test_stats_keep_a_bounded_number(device):
    loader = NeighborLoader(from_data(make_data(), device), [1], [0], batch_size=1)

    for _ in range(105):
        list(loader)

    assert [each.epoch for each in loader.stats()] == list(range(5, 105))


@pytest.mark.parametrize("depth", [0, 2])
def test_stats_tell_hits_of_hot_rows(device, depth):
    data = make_data()
    stores = from_data(data, device)
    stores[0].set_hot(None, "x", torch.arange(0, 60, 2))
    loader = NeighborLoader(
        stores, [4, 3], batch_size=7, depth=depth, exclude=["y", "train_mask", "edge_attr"]
    )

    ids = torch.cat([batch.n_id.cpu() for batch in loader])
    (stats,) = loader.stats()

    num_hot = int((ids % 2 == 0).sum())
    assert stats.num_hot_rows == num_hot
    assert stats.num_rows == stats.num_host_rows == ids.numel()
    assert stats.host_bytes == (ids.numel() - num_hot) * 20
    assert stats.hit_share == num_hot / ids.numel()


def test_stats_where_all_rows_are_hot(device):
    stores = from_data(make_data(), device)
    stores[0].set_hot(None, "x", torch.arange(60))
    loader = NeighborLoader(stores, [4], exclude=["y", "train_mask", "edge_attr"])

    list(loader)

    (stats,) = loader.stats()
    assert stats.hit_share == 1.0
    assert stats.host_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize("depth", [0, 2])
def test_device_rows_are_no_host_bytes(depth):
    stores = from_data(make_data().to("cuda"), "cuda")
    loader = NeighborLoader(stores, [4], batch_size=7, depth=depth)

    list(loader)

    (stats,) = loader.stats()
    assert stats.host_bytes == 0
    assert stats.num_rows > 0
