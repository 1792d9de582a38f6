import pytest
import torch
from torch_geometric.data import Data

from experiments.datasets.splits import set_masks, split_at_random


@pytest.mark.parametrize("num_nodes", [1, 31, 33, 257])
def test_split_at_random_gives_each_node_to_one_split(num_nodes):
    data = split_at_random(Data(x=torch.zeros(num_nodes, 1)), torch.Generator().manual_seed(0))

    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert torch.equal(masks.sum(dim=0), torch.ones(num_nodes, dtype=torch.int64))


def test_set_masks_marks_the_given_nodes():
    nodes = torch.tensor([2]), torch.tensor([0, 3]), torch.tensor([], dtype=torch.int64)

    data = set_masks(Data(x=torch.zeros(4, 1)), *nodes)

    assert data.train_mask.tolist() == [False, False, True, False]
    assert data.val_mask.tolist() == [True, False, False, True]
    assert not data.test_mask.any()
