"""Every way in which PyG and its users name rows, as ids that a table takes."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def row_ids(index: Any, num_rows: int) -> Tensor | slice | int:
    """Translate an index into ids.

    Parameters
    ----------
    index : slice, int, range, list, numpy.ndarray or torch.Tensor
        Integers are ids, never counted from the end; a slice follows Python; booleans are a mask
        over all rows.
    num_rows : int
        Rows of the table.

    Returns
    -------
    Tensor, slice or int
        Ids, int32 or int64, shape (N,), where ``index`` was; a slice with bounds and positive
        step; or an int.

    Raises
    ------
    TypeError
        If ``index`` is none of these, or holds neither integers nor booleans.
    IndexError
        If an int is outside ``[0, num_rows)`` or a mask has another length.
    """
    if isinstance(index, slice):
        start, stop, step = index.indices(num_rows)
        return slice(start, stop, step) if step > 0 else torch.arange(start, stop, step)
    if isinstance(index, int | np.integer) and not isinstance(index, bool):
        if not 0 <= index < num_rows:
            raise IndexError(f"id {index} is outside the tensor, which has {num_rows} rows")
        return int(index)
    if isinstance(index, range):
        return torch.arange(index.start, index.stop, index.step)
    if isinstance(index, list):
        index = torch.tensor(index, dtype=None if index else torch.int64)
    if isinstance(index, np.ndarray):
        index = torch.from_numpy(np.ascontiguousarray(index))
    if not isinstance(index, Tensor):
        raise TypeError(
            f"index is a {type(index).__name__}, expected None, a slice, an int, a range, a list, "
            "a NumPy array or a tensor"
        )
    return _tensor_ids(index, num_rows)


def _tensor_ids(index: Tensor, num_rows: int) -> Tensor:
    if index.dtype == torch.bool:
        if index.shape != (num_rows,):
            raise IndexError(
                f"mask has shape {tuple(index.shape)}, expected ({num_rows},): one entry a row"
            )
        return index.nonzero().view(-1)
    if index.is_floating_point() or index.is_complex():
        raise TypeError(f"index holds {index.dtype}, expected integers or booleans")
    return index if index.dtype in (torch.int32, torch.int64) else index.long()
