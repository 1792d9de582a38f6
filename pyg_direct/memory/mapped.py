"""Host memory that CPU and GPU address alike.

Ownership: a ``MappedArray`` keeps the memory it stands on alive, and so does every view taken from
it: closing the array never pulls memory from under a view.
"""

import mmap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_direct.memory.registration import Registration, page_permissions
from pyg_direct.memory.sending import InMessage


class MappedArray:
    """A row-major array in host memory, mapped for the GPU at its first CUDA view.

    Parameters
    ----------
    tensor : torch.Tensor
        On the CPU, contiguous; used in place. See ``from_array`` and ``empty``.

    Raises
    ------
    ValueError
        If ``tensor`` is not on the CPU or not contiguous.

    Notes
    -----
    Nothing is copied. The first CUDA view registers the whole storage of the tensor, which takes
    about 0.05 s for a GiB already touched. The memory is freed when the array, all its views, and
    its giver have let go.
    """

    def __init__(self, tensor: Tensor) -> None:
        if tensor.device.type != "cpu":
            raise ValueError(f"tensor is on {tensor.device}, expected the CPU; call .cpu() first")
        if not tensor.is_contiguous():
            raise ValueError(
                f"tensor of shape {tuple(tensor.shape)} has strides {tensor.stride()}, expected "
                "contiguous rows; call .contiguous(), which copies, or MappedArray.copy_of"
            )
        self._tensor: Tensor | None = tensor.detach().as_subclass(Tensor)
        self._registration: Registration | None = None

    @classmethod
    def from_array(cls, array: Tensor | np.ndarray[Any, Any]) -> "MappedArray":
        """Stand on the memory of a CPU tensor, NumPy array or ``np.memmap``, without a copy.

        Parameters
        ----------
        array : torch.Tensor or numpy.ndarray
            On the CPU, contiguous, any dtype that torch knows. A read-only array stays read-only
            for the GPU's sake too: write to it and the operating system ends the process.
        """
        return cls(array if isinstance(array, Tensor) else tensor_from_numpy(array))

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: torch.dtype) -> "MappedArray":
        """Allocate memory of exactly this size that starts on a page; the content is zero.

        Parameters
        ----------
        shape : tuple of int
            May hold zeros.
        dtype : torch.dtype
            Element type.
        """
        num_items = int(np.prod(shape, dtype=np.int64))
        if num_items == 0:
            return cls(torch.empty(shape, dtype=dtype))
        pages = mmap.mmap(-1, num_items * dtype.itemsize)
        return cls(torch.frombuffer(pages, dtype=dtype, count=num_items).view(shape))

    @classmethod
    def copy_of(cls, tensor: Tensor) -> "MappedArray":
        """Copy a tensor of any device and strides into memory of our own."""
        array = cls.empty(tuple(tensor.shape), tensor.dtype)
        array.cpu_view().copy_(tensor)
        return array

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._tensor is None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, in elements."""
        return tuple(self.cpu_view().shape)

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.cpu_view().dtype

    @property
    def num_bytes(self) -> int:
        """Size in bytes, without the rest of the last page."""
        return self.cpu_view().nbytes

    @property
    def address(self) -> int:
        """Host address of the first byte."""
        return self.cpu_view().data_ptr()

    @property
    def is_writable(self) -> bool:
        """Whether the CPU may write here; an array over a file opened for reading is not."""
        tensor = self.cpu_view()
        return tensor.numel() == 0 or page_permissions(tensor.data_ptr())[1] == "w"

    @property
    def is_cuda_writable(self) -> bool:
        """Whether a kernel may write here; registers the memory. Never over a file."""
        tensor = self.cpu_view()
        return tensor.numel() == 0 or (self.is_writable and self._register(tensor).is_writable)

    @property
    def device_address(self) -> int:
        """Address of the first byte for every GPU; registers the memory. 0 of an empty array."""
        tensor = self.cpu_view()
        if tensor.numel() == 0:
            return 0
        storage = tensor.untyped_storage()
        return self._register(tensor).device_address + tensor.data_ptr() - storage.data_ptr()

    def cpu_view(self) -> Tensor:
        """Return a CPU tensor on the same memory.

        Raises
        ------
        ValueError
            If the array is closed.
        """
        if self._tensor is None:
            raise ValueError("the MappedArray is closed; make a new one from the same memory")
        return self._tensor

    def cuda_view(self, device: torch.device | None = None) -> Tensor:
        """Return a CUDA tensor that aliases the host memory: every read crosses the bus.

        Parameters
        ----------
        device : torch.device, optional
            A CUDA device; the current one by default.

        Returns
        -------
        torch.Tensor
            Same shape and dtype. Keeps the memory alive and registered.

        Raises
        ------
        HostMappingError
            If CUDA refuses to register the memory.
        ValueError
            If the array is closed.
        """
        tensor = self.cpu_view()
        if tensor.numel() == 0:
            return torch.empty_like(tensor, device=device or "cuda")
        device_bytes = self._device_bytes(tensor)
        with torch.cuda.device(device or torch.cuda.current_device()):
            words = torch.as_tensor(device_bytes, device="cuda")
        return words.view(tensor.dtype).view(tensor.shape)

    def numba_view(self) -> Any:
        """Return a Numba device array, ``uint8`` of shape ``(num_bytes,)``, on the same memory.

        Raises
        ------
        HostMappingError
            If CUDA refuses to register the memory.
        ValueError
            If the array is closed or holds no byte.
        """
        from numba import cuda

        tensor = self.cpu_view()
        if tensor.numel() == 0:
            raise ValueError("the MappedArray has 0 bytes, expected 1 or more for a Numba view")
        return cuda.as_cuda_array(self._device_bytes(tensor))

    def _register(self, tensor: Tensor) -> Registration:
        if self._registration is None:
            # A copy of another view of the storage must not run out of a registered range.
            storage = tensor.untyped_storage()
            self._registration = Registration(storage.data_ptr(), storage.nbytes())
        return self._registration

    def _device_bytes(self, tensor: Tensor) -> "_DeviceBytes":
        return _DeviceBytes(self._register(tensor), tensor, self.device_address)

    def close(self) -> None:
        """Let go of the memory; harmless twice. Views taken before stay valid."""
        self._tensor = self._registration = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Sending a tensor to another process moves its storage, from under our registration; only
        # what is shared already stays where it is.
        tensor = self.cpu_view()
        return MappedArray, (tensor if tensor.is_shared() else InMessage(tensor),)

    def __enter__(self) -> "MappedArray":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.is_closed:
            return "MappedArray(closed)"
        return f"MappedArray(shape={self.shape}, dtype={self.dtype}, num_bytes={self.num_bytes})"


class _DeviceBytes:
    """What torch and Numba import: a device address that keeps registration and memory alive."""

    def __init__(self, registration: Registration, owner: Tensor, address: int) -> None:
        self._registration, self._owner = registration, owner
        self.__cuda_array_interface__ = {
            "shape": (owner.nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def tensor_from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a CPU tensor on the memory of a NumPy array, without a copy, read-only arrays too.

    Parameters
    ----------
    array : numpy.ndarray
        Any dtype that torch knows; kept alive by the tensor.
    """
    if array.flags.writeable:
        return torch.from_numpy(array)
    # torch warns about read-only arrays, since nothing would stop a write; tables never write
    # there.
    return torch.from_numpy(np.asarray(_Writable(array)))


class _Writable:
    """Says of a read-only array that it may be written."""

    def __init__(self, owner: np.ndarray[Any, Any]) -> None:
        interface = owner.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}
        self._owner = owner
