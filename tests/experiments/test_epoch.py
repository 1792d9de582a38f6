import torch
from torch_geometric.data import Data

from experiments.epoch import count_payload_bytes


def test_count_payload_bytes_counts_node_attributes():
    batch = Data(
        x=torch.zeros(5, 3),
        y=torch.zeros(5, dtype=torch.int64),
        train_mask=torch.zeros(5, dtype=torch.bool),
        n_id=torch.arange(5),
        edge_index=torch.zeros(2, 5, dtype=torch.int64),
        batch_size=2,
    )

    assert count_payload_bytes(batch) == 5 * 3 * 4 + 5 * 8 + 5


def test_count_payload_bytes_leaves_out_edges():
    batch = Data(
        x=torch.zeros(5, 3),
        edge_index=torch.zeros(2, 5, dtype=torch.int64),
        edge_attr=torch.zeros(5, 2),
        e_id=torch.arange(5),
    )

    assert count_payload_bytes(batch) == 5 * 3 * 4
