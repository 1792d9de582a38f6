import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

from pyg_direct.sampler import relation
from pyg_direct.sampler.relation import Relation


def _make():
    return Relation(
        edge_type=("a", "to", "b"),
        frontier_type="b",
        neighbor_type="a",
        colptr=torch.tensor([0, 2, 3]),
        row=torch.tensor([4, 5, 6]),
    )


@pytest.mark.parametrize("is_read_by_gpu", [False, True])
def test_relation_is_sent_without_moving_what_a_gpu_reads(monkeypatch, is_read_by_gpu):
    monkeypatch.setattr(relation, "is_registered", lambda *_: is_read_by_gpu)
    sent = _make()

    again = pickle.loads(ForkingPickler.dumps(sent))

    assert again.edge_type == sent.edge_type
    assert again.row.equal(sent.row)
    assert again.colptr.equal(sent.colptr)
    assert again.perm is None
    # torch shares a storage with another process by moving it.
    assert sent.row.is_shared() is not is_read_by_gpu
