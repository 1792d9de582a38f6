import gc
import pickle

import numpy as np
import pytest
import torch

from pyg_direct.stores import DirectFeatureStore
from tests.stores.contract import FeatureStoreContract, assert_same_bits, random_rows


class TestHostRows(FeatureStoreContract):
    @pytest.fixture
    def store(self, device):
        with DirectFeatureStore(device) as store:
            yield store


class TestHostRowsFromNumpy(FeatureStoreContract):
    @pytest.fixture
    def store(self, device):
        with DirectFeatureStore(device) as store:
            yield store

    @pytest.fixture
    def place(self):
        def place(tensor):
            try:
                return tensor.numpy()
            except TypeError:  # NumPy has neither bfloat16 nor float8
                return tensor

        return place


@pytest.mark.gpu
class TestDeviceRows(FeatureStoreContract):
    @pytest.fixture
    def store(self):
        with DirectFeatureStore("cuda") as store:
            yield store

    @pytest.fixture
    def place(self):
        return lambda tensor: tensor.cuda()


def test_put_tensor_uses_the_memory_in_place(device):
    x = torch.zeros(5, 2)
    store = DirectFeatureStore(device)
    store["paper", "x", None] = x

    x[3] = 7.0

    assert_same_bits(store["paper", "x", [3]], torch.full((1, 2), 7.0))


def test_rows_outlive_store_and_tensor(device):
    x = random_rows(torch.float32, 1000, 30)
    expected = x.clone()
    store = DirectFeatureStore(device)
    store["paper", "x", None] = x
    whole = store["paper", "x", None]

    store.close()
    del store, x
    gc.collect()

    assert_same_bits(whole, expected)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_mapped_files(device, tmp_path, mode):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "x.npy", rows)
    store = DirectFeatureStore(device)

    store["paper", "x", None] = np.load(tmp_path / "x.npy", mmap_mode=mode)

    np.testing.assert_array_equal(store["paper", "x", [3, 0]].cpu(), rows[[3, 0]])
    if mode == "r":
        with pytest.raises(ValueError, match="read-only memory"):
            store.update_tensor(torch.ones(1, 3), "paper", "x", [1])
        return
    store.update_tensor(torch.ones(1, 3), "paper", "x", [1])
    np.testing.assert_array_equal(store["paper", "x", [1]].cpu(), np.ones((1, 3)))
    assert (np.load(tmp_path / "x.npy")[1] == 1).all() == (mode == "r+")


def test_store_pickles(device):
    store = DirectFeatureStore(device)
    store["paper", "x", None] = random_rows(torch.float32, 37, 3)

    copy = pickle.loads(pickle.dumps(store))

    assert_same_bits(copy["paper", "x", [4, 2]], store["paper", "x", [4, 2]])


def test_device_is_checked():
    with pytest.raises(ValueError, match="expected 'cpu' or 'cuda'"):
        DirectFeatureStore("meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU where there is none")
def test_missing_gpu_is_refused():
    with pytest.raises(ValueError, match="torch sees no GPU"):
        DirectFeatureStore("cuda")
