import pytest
import torch
from scipy import stats
from torch_geometric.sampler import NegativeSampling

from pyg_direct.sampler.negatives import KeyedNegativeSampling


def test_sample_depends_on_the_key_alone():
    base = NegativeSampling("binary")
    torch.manual_seed(1)
    first = KeyedNegativeSampling(base, 5).sample(20, "src", 100)
    state = torch.get_rng_state()
    second = KeyedNegativeSampling(base, 5).sample(20, "src", 100)

    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first, KeyedNegativeSampling(base, 6).sample(20, "src", 100))


def test_sample_is_uniform():
    drawn = KeyedNegativeSampling(NegativeSampling("binary"), 5).sample(20_000, "dst", 9)

    assert stats.chisquare(drawn.bincount(minlength=9).numpy()).pvalue > 1e-3


def test_sample_follows_weights_among_past_nodes():
    weight = torch.tensor([1.0, 5.0, 2.0, 4.0])
    base = NegativeSampling("binary", dst_weight=weight)
    sampling = KeyedNegativeSampling(
        base, 5, link_time=torch.tensor([3]), node_time={"dst": torch.tensor([3, 9, 0, 1])}
    )

    counts = sampling.sample(14_000, "dst", 4).bincount(minlength=4).double()

    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]].numpy(), [2000.0, 4000.0, 8000.0]).pvalue > 1e-3


def test_sample_rejects_weights_of_another_length():
    sampling = KeyedNegativeSampling(NegativeSampling("binary", src_weight=torch.ones(3)), 5)

    with pytest.raises(ValueError, match="src_weight has 3 entries, expected 4"):
        sampling.sample(2, "src", 4)
