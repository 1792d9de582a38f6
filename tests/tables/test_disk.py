import numpy as np
import pytest
import torch

from pyg_direct.memory import MappedArray, is_registered
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, place
from pyg_direct.tables import DiskTable, Request
from tests.stores.contract import FeatureStoreContract


class TestRowsThroughThePageCache(FeatureStoreContract):
    @pytest.fixture
    def store(self, device):
        with DirectFeatureStore(device, page_cache=True) as store:
            yield store

    @pytest.fixture(autouse=True)
    def _whole_tensors_stay_on_the_cpu(self, request, device):
        if device.type == "cuda" and "everything_is_a_view" in request.node.name:
            pytest.skip("a file larger than memory has no alias on a GPU")


@pytest.fixture
def file(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (500, 37), dtype=np.uint8)
    np.save(tmp_path / "x.npy", rows)
    return tmp_path / "x.npy", torch.from_numpy(rows)


def open_table(path, device, mode="r"):
    array = MappedArray.from_array(np.load(path, mmap_mode=mode))
    return DiskTable(array, device, name="x")


@pytest.mark.parametrize("hot", [[], [3], range(0, 500, 2), range(500)], ids=len)
def test_gather(file, device, hot):
    path, rows = file
    table = open_table(path, device)
    table.set_hot(torch.tensor([*hot], dtype=torch.int64))
    index = torch.randint(0, 500, (777,))

    for request in (
        index,
        index.to(device).int(),
        Request(index.to(device), is_trusted=True),
        torch.tensor([3]),
    ):
        ids = request.index if isinstance(request, Request) else request
        assert table.gather(request).cpu().equal(rows[ids.cpu().long()])
    if len(hot) < 500:
        with pytest.raises(IndexError, match="id 500 is outside x"):
            table.gather(torch.tensor([500], device=device))


def test_nothing_is_registered(file, device):
    path, _ = file
    table = open_table(path, device)
    table.gather(torch.tensor([3, 4]))

    assert not is_registered(table.rows().data_ptr(), 100)
    assert table.tensor().device.type == "cpu"
    assert table.part(slice(3, 5)).device.type == device.type


def test_scatter_writes_file_and_hot_rows(file, device):
    path, rows = file
    table = open_table(path, device, mode="r+")
    table.set_hot(torch.tensor([3, 5]))
    new = torch.randint(0, 256, (2, 37), dtype=torch.uint8)

    table.scatter(torch.tensor([3, 4]), new)

    assert table.gather(torch.tensor([3, 4, 5])).cpu().equal(torch.cat([new, rows[[5]]]))
    assert np.load(path)[4].tolist() == new[1].tolist()


def test_placed_under_a_budget(file, device):
    path, rows = file
    store, edges = DirectFeatureStore(device, page_cache=True), DirectGraphStore()
    edges.put_edge_index(
        (torch.arange(500), torch.arange(500)), edge_type=None, layout="coo", size=(500, 500)
    )
    store[None, "x", None] = np.load(path, mmap_mode="r")

    plan = place(store, edges, 20_000, score=torch.arange(500.0))

    assert plan.tensors[-1].num_hot > 0
    assert store[None, "x", torch.tensor([0, 499])].cpu().equal(rows[[0, 499]])
