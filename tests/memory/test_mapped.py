import gc
import mmap
import os
import pickle

import numpy as np
import pytest
import torch

from pyg_direct.memory import HostMappingError, MappedArray, Registration
from pyg_direct.memory.registration import _segments, page_permissions

PAGE_BYTES = mmap.PAGESIZE


def test_empty_starts_on_a_page():
    array = MappedArray.empty((3, 5), torch.float32)

    assert array.address % PAGE_BYTES == 0
    assert (array.shape, array.dtype, array.num_bytes) == ((3, 5), torch.float32, 60)
    assert array.cpu_view().eq(0).all()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)], ids=str)
def test_empty_of_nothing(shape, device):
    array = MappedArray.empty(shape, torch.bfloat16)

    assert array.num_bytes == 0
    if device.type == "cuda":
        assert array.cuda_view().shape == shape


def test_from_array_shares_memory_with_tensors_and_numpy():
    rows = np.zeros((4, 3), np.float32)
    tensor = torch.zeros(4, 3)

    MappedArray.from_array(rows).cpu_view()[1] = 1
    MappedArray.from_array(tensor).cpu_view()[2] = 2

    assert rows[1].tolist() == [1, 1, 1]
    assert tensor[2].tolist() == [2, 2, 2]


def test_memory_outlives_its_giver():
    view = MappedArray.from_array(np.full(100_000, 7, np.int64)).cpu_view()
    gc.collect()

    assert view.eq(7).all()


def test_copy_of_takes_any_strides():
    tensor = torch.rand(5, 7).t()

    array = MappedArray.copy_of(tensor)

    assert array.cpu_view().equal(tensor)
    assert array.cpu_view().is_contiguous()


def test_rejects_strides_and_gpu_tensors():
    with pytest.raises(ValueError, match="expected contiguous rows"):
        MappedArray(torch.rand(5, 7).t())
    with pytest.raises(ValueError, match="tensor is on meta, expected the CPU"):
        MappedArray(torch.empty(3, device="meta"))


def test_close_is_harmless_twice_and_keeps_views():
    tensor = torch.arange(5)
    with MappedArray(tensor) as array:
        view = array.cpu_view()

    array.close()

    assert view.tolist() == [0, 1, 2, 3, 4]
    assert repr(array) == "MappedArray(closed)"
    with pytest.raises(ValueError, match="is closed"):
        array.cpu_view()


def test_is_writable_follows_the_file(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(10_000))

    def is_writable(mode):
        return MappedArray.from_array(np.load(tmp_path / "x.npy", mmap_mode=mode)).is_writable

    assert [is_writable(mode) for mode in ("r", "r+", "c")] == [False, True, True]
    assert MappedArray.empty((4,), torch.int8).is_writable


def test_page_permissions_tell_private_from_shared():
    private = MappedArray(torch.zeros(100_000))
    shared = MappedArray(torch.zeros(100_000).share_memory_())

    assert page_permissions(private.address) == "rw-p"
    assert page_permissions(shared.address) == "rw-s"


def test_pickle_copies_and_leaves_our_memory_where_it_is():
    array = MappedArray(torch.arange(5))
    address = array.address

    copy = pickle.loads(pickle.dumps(array))

    assert copy.cpu_view().equal(array.cpu_view())
    assert array.address == address


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU where there is none")
def test_cuda_view_without_a_gpu_says_so():
    with pytest.raises(HostMappingError, match=r"torch.cuda.is_available"):
        MappedArray(torch.zeros(4)).cuda_view()


@pytest.mark.gpu
class TestOnGpu:
    @pytest.fixture(autouse=True)
    def _nothing_stays_registered(self):
        gc.collect()
        before = _segments.num_bytes()
        yield
        gc.collect()
        assert _segments.num_bytes() == before

    @pytest.mark.parametrize(
        "dtype",
        [torch.bool, torch.bfloat16, torch.float8_e4m3fn, torch.complex128, torch.float32],
        ids=str,
    )
    def test_cuda_view_aliases_host_memory(self, dtype):
        array = MappedArray(torch.zeros(1000, 3).to(dtype))

        view = array.cuda_view()
        view[5] = 1
        torch.cuda.synchronize()

        assert (view.device.type, view.dtype, view.shape) == ("cuda", dtype, (1000, 3))
        ones = torch.ones(3).to(dtype)
        assert array.cpu_view()[5].view(torch.uint8).equal(ones.view(torch.uint8))
        del view

    def test_views_of_one_storage_register_it_once(self):
        before = _segments.num_bytes()
        tensor = torch.arange(10_000, dtype=torch.uint8)

        views = [MappedArray(tensor[100:200]).cuda_view(), MappedArray(tensor).cuda_view()]

        assert _segments.num_bytes() - before == 10_000
        del views[1]
        gc.collect()
        assert views[0].cpu().equal(tensor[100:200])
        del views

    def test_overlapping_arrays_are_registered_as_one(self):
        before = _segments.num_bytes()
        rows = np.arange(10_000, dtype=np.uint8)

        views = [
            MappedArray.from_array(rows[start:stop]).cuda_view()
            for start, stop in ((100, 200), (300, 400), (150, 350), (0, 10_000))
        ]

        assert _segments.num_bytes() - before == 10_000
        for view, (start, stop) in zip(views, ((100, 200), (300, 400), (150, 350)), strict=False):
            assert view.cpu().equal(torch.from_numpy(rows[start:stop]))
        # A copy may start inside a registered range only if it stays there.
        assert torch.from_numpy(rows).cuda().cpu().equal(torch.from_numpy(rows))
        del views, view

    def test_neighbours_in_memory_are_left_alone(self):
        memory = np.arange(3 * PAGE_BYTES, dtype=np.uint8)
        view = MappedArray.from_array(memory[100:200]).cuda_view()

        for start, stop in ((200, 300), (0, 100), (200, 2 * PAGE_BYTES)):
            target = torch.from_numpy(memory[start:stop])
            assert target.cuda().cpu().equal(target)
            target.copy_(torch.ones(stop - start, dtype=torch.uint8, device="cuda"))
            assert target.eq(1).all()
        assert view.cpu().equal(torch.arange(100, 200, dtype=torch.uint8))
        del view

    def test_views_keep_closed_memory_alive(self):
        with MappedArray.copy_of(torch.arange(100_000)) as array:
            view = array.cuda_view()
        gc.collect()

        assert view.sum().item() == 99_999 * 50_000
        del view

    def test_memory_pinned_by_torch_is_left_to_torch(self):
        tensor = torch.arange(10_000).pin_memory()

        view = MappedArray(tensor).cuda_view()
        assert view.cpu().equal(tensor)
        del view
        gc.collect()

        assert tensor.is_pinned()

    def test_shared_memory_is_registered_in_place(self):
        tensor = torch.arange(10_000).share_memory_()

        assert MappedArray(tensor).cuda_view().cpu().equal(tensor)

    @pytest.mark.parametrize("mode", ["r", "r+", "c"])
    def test_files_are_read_in_place(self, tmp_path, mode):
        np.save(tmp_path / "x.npy", np.arange(10_000))
        array = MappedArray.from_array(np.load(tmp_path / "x.npy", mmap_mode=mode))

        assert array.cuda_view().cpu().equal(torch.arange(10_000))
        assert array.is_cuda_writable == (mode == "c")
        array.close()

    def test_a_forked_child_does_not_collect_our_tensors(self):
        cycle = [MappedArray(torch.arange(5)).cuda_view()]
        cycle.append(cycle)
        del cycle

        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0)

        assert os.waitpid(child, 0)[1] == 0

    def test_numba_view(self):
        array = MappedArray(torch.arange(10, dtype=torch.uint8))

        assert array.numba_view().copy_to_host().tolist() == list(range(10))
        array.close()

    def test_refusal_names_bytes_code_and_limits(self):
        pages = mmap.mmap(-1, 8 * PAGE_BYTES)
        address = torch.frombuffer(pages, dtype=torch.uint8).data_ptr()
        hole = address + 2**40

        with pytest.raises(HostMappingError, match=r"\d+ bytes.*CUDA_ERROR.*ulimit -l"):
            Registration(hole, PAGE_BYTES)
        assert MappedArray(torch.arange(5)).cuda_view().tolist() == [0, 1, 2, 3, 4]
