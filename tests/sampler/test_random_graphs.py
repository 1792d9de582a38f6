"""CPU and CUDA give the same batch on random graphs of every shape."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NodeSamplerInput

from pyg_direct.kernels.launch import IS_SIMULATOR
from pyg_direct.sampler import DirectNeighborSampler
from tests.sampler.graphs import MODES, assert_same, make_data, make_hetero, on_gpu

# The simulator takes tens of milliseconds a batch.
NUM_GRAPHS = 100 if IS_SIMULATOR else 200

pytestmark = [] if IS_SIMULATOR else pytest.mark.gpu

# PyG warns of edge types that have no opposite.
NO_OPPOSITE = pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning")


@NO_OPPOSITE
@settings(
    max_examples=NUM_GRAPHS, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(
    shape=st.tuples(st.integers(1, 50), st.integers(8, 150)),
    is_hetero=st.booleans(),
    mode=st.sampled_from(list(MODES)),
    fanouts=st.lists(st.integers(-1, 6), min_size=1, max_size=3),
    num_seeds=st.integers(0, 6),
    seed=st.integers(0, 2**63 - 1),
    batch=st.integers(0, 2**63 - 1),
)
def test_cpu_and_cuda_agree_on_random_graphs(
    shape, is_hetero, mode, fanouts, num_seeds, seed, batch
):
    data = (make_hetero if is_hetero else make_data)(*shape, seed=seed % 1000)
    assert is_hetero == isinstance(data, HeteroData)
    options = MODES[mode]
    generator = torch.Generator().manual_seed(seed % 1000)
    seeds = torch.randint(shape[0], (num_seeds,), generator=generator)
    time = torch.randint(25, (num_seeds,), generator=generator)
    inputs = NodeSamplerInput(
        None, seeds, time if "time_attr" in options else None, "a" if is_hetero else None
    )

    left = DirectNeighborSampler(data, fanouts, seed=seed, device="cpu", **options)
    right = on_gpu(data, fanouts, seed=seed, **options)

    assert_same(
        left.sample_from_nodes(inputs, batch=batch), right.sample_from_nodes(inputs, batch=batch)
    )
