"""Register host memory with CUDA, byte for byte, each byte once.

CUDA refuses a range that overlaps one it knows, and a copy that starts inside a registered range
and runs out of it. So ranges are registered exactly as they are asked for, never rounded to pages
that other data shares; and a range that overlaps registered ones is registered anew as one with
them. The process keeps the list of these *segments*; a ``Registration`` holds a share in one, and
the segment is unregistered when the last share is gone.

Assumption: a forked child touches none of it; CUDA itself would not work there.
"""

import functools
import gc
import os
import threading
import weakref
from typing import Any

from pyg_direct.memory.errors import HostMappingError


class Registration:
    """The right to read a range of host memory from every GPU of the process.

    The memory stays registered until this object is gone, whoever else lets go before.

    Parameters
    ----------
    address : int
        First byte, in host memory.
    num_bytes : int
        Length in bytes, more than 0.

    Attributes
    ----------
    device_address : int
        Where the GPUs see the first byte.
    is_writable : bool
        Whether a kernel may write there; a file that is mapped, never.

    Raises
    ------
    HostMappingError
        If CUDA refuses, or the mapping can be registered in no safe way.
    """

    def __init__(self, address: int, num_bytes: int) -> None:
        _spare_forked_children()
        share = _segments.acquire(address, address + num_bytes)
        self.device_address = _device_address(address)
        self.is_writable = share.segment.is_writable
        self._finalizer = weakref.finalize(self, _segments.release, share, os.getpid())
        # At exit the driver is gone before us, and the kernel frees the pages anyway.
        self._finalizer.atexit = False


class _Segment:
    """One range known to CUDA."""

    __slots__ = ("is_ours", "is_writable", "shares", "start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.shares: list[_Share] = []
        # Memory that was pinned elsewhere (``tensor.pin_memory()``) is left to who pinned it.
        self.is_ours = not _is_registered(start)
        self.is_writable = True
        self.open()

    def open(self) -> None:
        if self.is_ours:
            self.is_writable = _register(self.start, self.stop - self.start)

    def close(self) -> None:
        if self.is_ours:
            from cuda.bindings import driver

            driver.cuMemHostUnregister(self.start)


class _Share:
    """What one registration holds: the segment changes when segments become one."""

    __slots__ = ("segment",)

    def __init__(self, segment: _Segment) -> None:
        self.segment = segment
        segment.shares.append(self)


class _Segments:
    """The segments of this process; they do not overlap."""

    def __init__(self) -> None:
        # Finalizers may run inside ``acquire``, on the same thread.
        self._lock = threading.RLock()
        self._segments: list[_Segment] = []

    def acquire(self, start: int, stop: int) -> _Share:
        with self._lock:
            met = [each for each in self._segments if each.start < stop and start < each.stop]
            if len(met) == 1 and met[0].start <= start and stop <= met[0].stop:
                return _Share(met[0])
            return _Share(self._unite(met, start, stop))

    def _unite(self, met: list[_Segment], start: int, stop: int) -> _Segment:
        """Register a range as one with the segments that it overlaps."""
        if met:
            _wait_for_gpu()
        for segment in met:
            segment.close()
        try:
            united = _Segment(
                min([start, *(segment.start for segment in met)]),
                max([stop, *(segment.stop for segment in met)]),
            )
        except HostMappingError:
            for segment in met:
                segment.open()
            raise
        for segment in met:
            self._segments.remove(segment)
            for share in segment.shares:
                share.segment = united
            united.shares += segment.shares
        self._segments.append(united)
        return united

    def release(self, share: _Share, process: int) -> None:
        if process != os.getpid():
            return
        with self._lock:
            segment = share.segment
            segment.shares.remove(share)
            if not segment.shares:
                if segment.is_ours:
                    _wait_for_gpu()
                self._segments.remove(segment)
                segment.close()

    def holds(self, start: int, stop: int) -> bool:
        """Whether a byte of a range is registered now."""
        return any(each.start < stop and start < each.stop for each in self._segments)

    def num_bytes(self) -> int:
        """Bytes that are registered now."""
        return sum(segment.stop - segment.start for segment in self._segments)


_segments = _Segments()


def is_registered(address: int, num_bytes: int) -> bool:
    """Return whether this process has registered a byte of a range of host memory.

    Parameters
    ----------
    address : int
        First byte, in host memory.
    num_bytes : int
        Length in bytes.
    """
    return _segments.holds(address, address + num_bytes)


@functools.cache
def _spare_forked_children() -> None:
    # A worker that a data loader forks inherits CUDA tensors over host memory. Were one of them
    # garbage (a loader refers to itself, so an old one is) and collected there, its destructor
    # would call CUDA, which ends the process. A frozen object is never collected.
    os.register_at_fork(after_in_child=gc.freeze)


def _cuda_driver() -> Any:
    """Return the driver's module, with the current device's context made current."""
    import torch
    from cuda.bindings import driver

    if not torch.cuda.is_available():
        raise HostMappingError(
            "memory can be mapped for a GPU only where torch.cuda.is_available(); "
            "keep device='cpu' on this machine, or install a CUDA build of torch"
        )
    torch.cuda.current_stream().query()
    return driver


def _wait_for_gpu() -> None:
    import torch

    # A kernel may still be reading the pages.
    for device in range(torch.cuda.device_count()):
        if torch.cuda.memory_reserved(device) or device == torch.cuda.current_device():
            torch.cuda.synchronize(device)


def _is_registered(address: int) -> bool:
    driver = _cuda_driver()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    code, memory_type = driver.cuPointerGetAttribute(attribute, address)
    host = int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)
    return code == driver.CUresult.CUDA_SUCCESS and int(memory_type) == host


def _device_address(address: int) -> int:
    driver = _cuda_driver()
    code, device_address = driver.cuMemHostGetDevicePointer(address, 0)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise HostMappingError.from_code("find the device address of", address, 0, code)
    return int(device_address)


def _register(start: int, num_bytes: int) -> bool:
    """Register a range and return whether the GPU may write to it."""
    driver = _cuda_driver()
    flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    permissions = page_permissions(start)
    if permissions[1] != "w" and permissions[3] == "p":
        raise HostMappingError(
            f"{num_bytes} bytes at {start:#x} are a private, read-only mapping, which CUDA cannot "
            "register; map the file shared (np.memmap mode 'r') or copy it into memory"
        )
    (code,) = driver.cuMemHostRegister(start, num_bytes, flags)
    is_writable = bool(code == driver.CUresult.CUDA_SUCCESS)
    if not is_writable and permissions[3] == "s":
        # Files map only for reading. On private memory this flag has hung the driver: never there.
        flags |= driver.CU_MEMHOSTREGISTER_READ_ONLY
        (code,) = driver.cuMemHostRegister(start, num_bytes, flags)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise HostMappingError.from_code("register", start, num_bytes, code)
    return is_writable


def page_permissions(address: int) -> str:
    """Return how the operating system maps the page at ``address``.

    Parameters
    ----------
    address : int
        In host memory.

    Returns
    -------
    str
        As Linux writes it: ``"rw-p"`` is readable, writable, private; ``"r--s"`` a file shared for
        reading. ``"rw-p"`` where the operating system does not say.
    """
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                bounds, permissions = line.split(maxsplit=2)[:2]
                start, stop = (int(bound, 16) for bound in bounds.split("-"))
                if start <= address < stop:
                    return permissions
    except OSError:
        pass
    return "rw-p"
