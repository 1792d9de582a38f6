"""Masked cross-entropy that overwrites the logits by its gradient, and accuracy.

Shape legend: ``m`` rows of this rank, ``C`` classes.
Both walk over chunks of rows, so that no second (m, C) array is allocated.
"""

import torch
from torch import Tensor

from pyg_direct.fullbatch.memory import chunk_rows


def cross_entropy_in_place(logits: Tensor, label: Tensor, mask: Tensor, total: int) -> Tensor:
    """Return this rank's share of the mean loss; leave its gradient in ``logits``.

    Parameters
    ----------
    logits : float tensor, shape (m, C)
        Overwritten by the gradient. Rows outside the mask become zero.
    label : int32 tensor, shape (m,)
        Not read outside the mask.
    mask : bool tensor, shape (m,)
    total : int
        Number of true entries of the mask over all ranks.

    Returns
    -------
    Tensor
        float32 (float64 for float64 logits), shape (), on the device; does not wait for the GPU.

    Raises
    ------
    ValueError
        If no row is in the mask on any rank.
    """
    if total < 1:
        raise ValueError("the mask is empty on every rank, expected one labelled row or more")
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    loss = torch.zeros((), dtype=wide, device=logits.device)
    step = chunk_rows(*logits.shape)
    for start in range(0, logits.size(0), step):
        part = slice(start, start + step)
        inside = mask[part]
        target = torch.where(inside, label[part], 0).long()[:, None]
        weight = inside.to(wide)[:, None] / total
        gradient = torch.log_softmax(logits[part], dim=1, dtype=wide)
        loss -= (gradient.gather(1, target) * weight).sum()
        gradient.exp_()
        gradient.scatter_add_(1, target, torch.full_like(weight, -1.0))
        gradient.mul_(weight)
        logits[part].copy_(gradient)
    return loss


def count_correct(logits: Tensor, label: Tensor, masks: list[Tensor]) -> Tensor:
    """Count the rows of each mask whose largest logit is that of their label.

    Parameters
    ----------
    logits : float tensor, shape (m, C)
    label : int32 tensor, shape (m,)
    masks : list of bool tensors, shape (m,)

    Returns
    -------
    Tensor
        int64, shape (number of masks,), on the device.
    """
    correct = torch.zeros(len(masks), dtype=torch.int64, device=logits.device)
    step = chunk_rows(*logits.shape)
    for start in range(0, logits.size(0), step):
        part = slice(start, start + step)
        hit = logits[part].argmax(dim=1) == label[part]
        for number, mask in enumerate(masks):
            correct[number] += (hit & mask[part]).sum()
    return correct
