"""A tensor in host memory that GPU and CPU use alike: PyTorch-Direct's unified tensor.

(Min et al. 2021, "PyTorch-Direct: Enabling GPU Centric Data Access for Very Large Graph Neural
Network Training with Irregular Accesses", arXiv 2101.07956.) To torch it is a CPU tensor; every
function of torch that meets it asks here first where to run.

Shape legend: ``R`` rows, ``N`` requested rows.
"""

from collections.abc import Callable, Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor
from torch._C import DisableTorchFunctionSubclass

from pyg_direct.memory import InMessage, MappedArray, is_registered
from pyg_direct.tables import HostTable
from pyg_direct.tensors import operations
from pyg_direct.tensors.gradients import GatherRows, ReadInPlace
from pyg_direct.tensors.indexing import RowsWanted, gather_arguments, plain, row_ids
from pyg_direct.tensors.operations import has_gpu


def unified(tensor: Tensor) -> "UnifiedTensor":
    """Return a tensor on the same host memory that a GPU reads in place.

    Parameters
    ----------
    tensor : torch.Tensor
        Dense. On the CPU it is used in place, whatever its strides; from a GPU it is copied.

    Returns
    -------
    UnifiedTensor
        ``x[index]``, ``index_select`` and ``F.embedding`` gather rows on the GPU if there is one.
        The memory is registered when a GPU first reads it.

    Raises
    ------
    TypeError
        If ``tensor`` is no dense tensor.
    """
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        kind = tensor.layout if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"tensor is a {kind}, expected a dense torch.Tensor")
    if isinstance(tensor, UnifiedTensor):
        return tensor
    return tensor.cpu().as_subclass(UnifiedTensor)


class UnifiedTensor(Tensor):
    """Host memory as a tensor for both sides; made by ``unified``.

    Notes
    -----
    ``is_unified`` is true, and ``device`` is the CPU. Views are unified; ``cpu()`` gives a plain
    tensor on the same memory, ``cuda()`` a copy in device memory. An operation that changes it
    waits for the GPU.
    """

    is_unified = True

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch where its operands ask for it."""
        kwargs = kwargs or {}
        with DisableTorchFunctionSubclass():
            wanted = gather_arguments(func, args, kwargs)
            if wanted is not None:
                return _gather(wanted)
            if _is_changed(func, args, kwargs):
                return _change(func, args, kwargs)
            if _runs_on_host(func, args, kwargs):
                return _run_on_host(func, args, kwargs)
            return _run_on_gpu(func, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # What is saved can be loaded without this package.
        with DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> "UnifiedTensor":
        with DisableTorchFunctionSubclass():
            copy = unified(self.as_subclass(Tensor).detach().clone())
            copy.requires_grad_(self.requires_grad)
        memo[id(self)] = copy
        return copy


def _alias(x: Tensor) -> Tensor:
    """Return a CUDA tensor over the memory of a unified tensor, with its strides."""
    host = x.as_subclass(Tensor).detach()
    item_bytes = host.element_size()
    everything = torch.empty(0, dtype=torch.uint8).set_(host.untyped_storage())
    memory = MappedArray(everything).cuda_view()[host.storage_offset() * item_bytes :]
    memory = memory[: memory.numel() // item_bytes * item_bytes]
    if memory.data_ptr() % item_bytes:
        raise ValueError(
            f"the unified tensor starts at {memory.data_ptr():#x}, expected a multiple of "
            f"{item_bytes} bytes; copy it with .cpu().clone()"
        )
    alias = memory.view(host.dtype).as_strided(host.size(), host.stride())
    if torch.is_grad_enabled() and x.requires_grad:
        alias = ReadInPlace.apply(x, alias)  # type: ignore[no-untyped-call]
    return alias


def _table(x: Tensor) -> HostTable:
    """Return a table over a contiguous unified tensor; kept until the memory is another."""
    host = x.as_subclass(Tensor).detach()
    device = torch.device("cpu")
    if has_gpu():
        device = torch.device("cuda", torch.cuda.current_device())
    key = (host.data_ptr(), host.shape, host.dtype, device)
    kept = x.__dict__.get("_kept_table")
    if kept is None or kept[0] != key:
        kept = (key, HostTable(MappedArray(host), device, name="the unified tensor"))
        x.__dict__["_kept_table"] = kept
    table: HostTable = kept[1]
    return table


def _gather(wanted: RowsWanted) -> Tensor:
    x, ids = wanted.x, wanted.ids.reshape(-1)
    table = _table(x)
    if torch.is_grad_enabled() and x.requires_grad:
        rows: Tensor = GatherRows.apply(  # type: ignore[no-untyped-call]
            x, table, ids, wanted.is_sparse, wanted.padding_id
        )
    else:
        rows = table.gather(ids)
    return rows.view(*wanted.ids.shape, *x.shape[1:])


def _is_changed(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if any(isinstance(each, UnifiedTensor) for each in operations.tensors_in(kwargs.get("out"))):
        return True
    targets = operations.tensors_in(args[:1])
    is_target = any(isinstance(each, UnifiedTensor) for each in targets)
    is_write = func in operations.SETITEM or operations.is_in_place(func) or kwargs.get("inplace")
    return bool(is_target and is_write) and not operations.is_on_host(func)


def _change(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write to a unified tensor: whole rows by the GPU, all else by the CPU."""
    if has_gpu() and func in operations.SETITEM and _scatter(*args):
        return None
    if has_gpu():
        # A kernel may still read what the CPU is about to write.
        torch.cuda.synchronize()
        args, kwargs = operations.replace_tensors(
            (args, kwargs), lambda each: each.cpu() if each.is_cuda else each
        )
    return func(*args, **kwargs)


def _scatter(x: UnifiedTensor, index: Any, value: Any) -> bool:
    """Write rows by a kernel, if they are whole rows, and wait for it."""
    is_rows = isinstance(index, Tensor) and index.dim() == 1
    ids = row_ids(x, index) if is_rows else None
    if ids is None or (x.requires_grad and torch.is_grad_enabled()):
        return False
    rows = torch.as_tensor(value)
    rows = rows.detach().to("cuda", x.dtype).expand(ids.numel(), *x.shape[1:])
    _table(x).scatter(ids, rows)
    torch.cuda.current_stream().synchronize()
    return True


def _runs_on_host(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if not has_gpu() or operations.is_on_host(func):
        return True
    if func in operations.GETITEM:
        return operations.is_basic_index(args[1])
    operands = [*operations.tensors_in((args, kwargs))]
    if any(each.is_cuda for each in operands):
        return False
    return any(each.dim() and not isinstance(each, UnifiedTensor) for each in operands)


def _run_on_host(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = getattr(func, "__name__", "")
    if name == "share_memory_":
        return _share_memory(args[0])
    memories = {
        each.untyped_storage().data_ptr(): True
        for each in operations.tensors_in((args, kwargs))
        if isinstance(each, UnifiedTensor)
    }
    out = func(*args, **kwargs)
    if name in ("as_subclass", "cpu") or (name == "to" and _names_cpu(args, kwargs)):
        return operations.replace_tensors(out, plain) if name != "as_subclass" else out

    def keep_unified(each: Tensor) -> Tensor:
        is_new = type(each) is Tensor and each.layout == torch.strided
        if (
            is_new
            and each.device.type == "cpu"
            and each.numel()
            and each.untyped_storage().data_ptr() in memories
        ):
            return each.as_subclass(UnifiedTensor)
        return each

    return operations.replace_tensors(out, keep_unified)


def _names_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(
        isinstance(each, str | torch.device) and torch.device(each).type == "cpu"
        for each in (*args[1:], *kwargs.values())
    )


def _share_memory(x: UnifiedTensor) -> UnifiedTensor:
    # Sharing moves the memory, from under whatever a GPU was told of the old one.
    host = x.as_subclass(Tensor)
    is_shared = host.is_shared()
    storage = host.untyped_storage()
    if not is_shared and is_registered(storage.data_ptr(), storage.nbytes()):
        raise RuntimeError(
            "a GPU has read this unified tensor already, and sharing moves its memory; call "
            "share_memory_() before unified()"
        )
    host.share_memory_()
    return x


def _run_on_gpu(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    is_index = func in operations.GETITEM

    def on_gpu(each: Tensor) -> Tensor:
        if isinstance(each, UnifiedTensor):
            return _alias(each)
        # An index on the CPU is moved; other operands torch refuses itself.
        return each.cuda() if is_index else each

    args, kwargs = operations.replace_tensors((args, kwargs), on_gpu)
    return func(*args, **kwargs)


def _reduce(x: UnifiedTensor) -> tuple[Any, ...]:
    """Send to another process: in place if the memory is shared, else a copy."""
    with DisableTorchFunctionSubclass():
        memory = x.as_subclass(Tensor).detach()
        return unified, (memory if memory.is_shared() else InMessage(memory),)


ForkingPickler.register(UnifiedTensor, _reduce)
