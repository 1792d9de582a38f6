"""Register host memory with CUDA, page by page, each page once.

CUDA refuses to register a page twice, and two tensors may share one. The process therefore keeps a
list of *segments*: disjoint, page-aligned ranges, each registered once and counted. A
``Registration`` holds the segments that cover its range; a segment is unregistered when the last
one lets go.

Assumption: a forked child touches none of it; CUDA itself would not work there.
"""

import mmap
import os
import threading
import weakref
from bisect import insort
from typing import Any

from pyg_direct.memory.errors import HostMappingError

PAGE_BYTES = mmap.PAGESIZE


class Registration:
    """The right to read host memory from every GPU of the process.

    The memory stays registered until this object is gone, whoever else lets go before.

    Parameters
    ----------
    address : int
        First byte, in host memory.
    num_bytes : int
        Length in bytes, more than 0. The whole pages around the range are registered.

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
        start = address - address % PAGE_BYTES
        stop = -(-(address + num_bytes) // PAGE_BYTES) * PAGE_BYTES
        segments = _pages.acquire(start, stop)
        self.device_address = _device_address(address)
        self.is_writable = all(segment.is_writable for segment in segments)
        self._finalizer = weakref.finalize(self, _pages.release, segments, os.getpid())
        # At exit the driver is gone before us, and the kernel frees the pages anyway.
        self._finalizer.atexit = False


class _Segment:
    """One page-aligned range known to CUDA: ``count`` registrations stand on it."""

    __slots__ = ("count", "is_ours", "is_writable", "start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop, self.count, self.is_writable = start, stop, 0, True
        # Memory that was pinned elsewhere (``tensor.pin_memory()``) is left to who pinned it.
        self.is_ours = not _is_registered(start)
        if self.is_ours:
            self.is_writable = _register(start, stop - start)

    def close(self) -> None:
        if self.is_ours:
            from cuda.bindings import driver

            driver.cuMemHostUnregister(self.start)


class _Pages:
    """The segments of this process, in order of address."""

    def __init__(self) -> None:
        # Finalizers may run inside ``acquire``, on the same thread.
        self._lock = threading.RLock()
        self._segments: list[_Segment] = []

    def acquire(self, start: int, stop: int) -> list[_Segment]:
        with self._lock:
            taken: list[_Segment] = []
            try:
                for gap_start, gap_stop, segment in self._cover(start, stop):
                    segment = segment or self._add(gap_start, gap_stop)
                    segment.count += 1
                    taken.append(segment)
            except HostMappingError:
                self._drop(taken)
                raise
            return taken

    def release(self, segments: list[_Segment], process: int) -> None:
        if process != os.getpid():
            return
        with self._lock:
            self._drop(segments)

    def _cover(self, start: int, stop: int) -> list[tuple[int, int, _Segment | None]]:
        """Cut ``[start, stop)`` into what a segment covers already and the gaps between."""
        pieces: list[tuple[int, int, _Segment | None]] = []
        for segment in self._segments:
            if segment.stop <= start or segment.start >= stop:
                continue
            if start < segment.start:
                pieces.append((start, segment.start, None))
            pieces.append((segment.start, segment.stop, segment))
            start = segment.stop
        if start < stop:
            pieces.append((start, stop, None))
        return pieces

    def _add(self, start: int, stop: int) -> _Segment:
        segment = _Segment(start, stop)
        insort(self._segments, segment, key=lambda each: each.start)
        return segment

    def _drop(self, segments: list[_Segment]) -> None:
        for segment in segments:
            segment.count -= 1
        idle = [segment for segment in segments if segment.count == 0]
        if any(segment.is_ours for segment in idle):
            _wait_for_gpu()
        for segment in idle:
            self._segments.remove(segment)
            segment.close()


_pages = _Pages()


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
    """Register whole pages and return whether the GPU may write to them."""
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
