"""Masks that tell which nodes train, validate and test."""

import torch
from torch import Tensor
from torch_geometric.data import Data

TRAIN_SHARE, VAL_SHARE = 0.6, 0.2
MASKS = ("train_mask", "val_mask", "test_mask")


def split_at_random(data: Data, generator: torch.Generator) -> Data:
    """Set ``train_mask``, ``val_mask`` and ``test_mask`` to 60, 20 and 20 percent of the nodes.

    Parameters
    ----------
    data : Data
        Changed in place.
    generator : torch.Generator
        On the CPU; decides the split.
    """
    order = torch.randperm(data.num_nodes, generator=generator)
    first, second = (
        int(data.num_nodes * share) for share in (TRAIN_SHARE, TRAIN_SHARE + VAL_SHARE)
    )
    return set_masks(data, order[:first], order[first:second], order[second:])


def set_masks(data: Data, train: Tensor, val: Tensor, test: Tensor) -> Data:
    """Set the three masks from node ids.

    Parameters
    ----------
    data : Data
        Changed in place.
    train, val, test : int64 Tensor
        Node ids of each split.
    """
    for name, nodes in zip(MASKS, (train, val, test), strict=True):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][nodes] = True
    return data
