import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import GCN, GraphSAGE

from pyg_direct.fullbatch import FullBatchGNN, FullBatchTrainer, GraphSource, memory
from tests.fullbatch.graphs import random_graph

LAYERS = {
    "projects first": {"hidden_channels": 3},
    "aggregates first": {"hidden_channels": 1},
    "residual": {"hidden_channels": 4, "residual": True},
    "leaky": {"hidden_channels": 3, "act": "leaky_relu", "negative_slope": 0.2},
    "dropout": {"hidden_channels": 3, "dropout": 0.4},
    "leaky dropout": {"hidden_channels": 3, "dropout": 0.4, "act": "leaky_relu"},
    "no bias": {"hidden_channels": 3, "bias": False},
    "widens a little": {"hidden_channels": 2},
    "mean": {"hidden_channels": 3, "normalization": "mean"},
}


@pytest.mark.parametrize(
    ("chunk_elements", "column_block"),
    [((1 << 23, 1 << 27), None), ((8, 8), 2)],
    ids=["whole", "in parts"],
)
@pytest.mark.parametrize("convolution", ["gcn", "sage"])
@pytest.mark.parametrize("name", LAYERS)
def test_forward_passes_gradcheck(name, convolution, chunk_elements, column_block, monkeypatch):
    monkeypatch.setattr(memory, "CHUNK_ELEMENTS", chunk_elements)
    data = random_graph(9, num_features=5)
    data.x, data.y = data.x.double(), data.y % 3
    model = FullBatchGNN(
        in_channels=5, num_layers=3, out_channels=3, convolution=convolution, **LAYERS[name]
    )
    placement = {"dtype": torch.float64, "column_block": column_block}
    trainer = FullBatchTrainer(model, GraphSource(data), **placement)
    names = [key for key, _ in model.named_parameters()]
    key = 7 if model.architecture.dropout else None

    def logits(*parameters):
        arguments = (trainer.graph.propagation, trainer.ranks)
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(model, named, arguments, {"dropout_key": key})

    # A bias of zero leaves isolated vertices on the kink of ReLU.
    values = [torch.randn_like(p).requires_grad_() for p in model.parameters()]
    assert torch.autograd.gradcheck(logits, values)


@pytest.mark.parametrize(("convolution", "pyg"), [("gcn", GCN), ("sage", GraphSAGE)])
def test_forward_gives_pyg_gradients_of_any_loss(convolution, pyg):
    data = random_graph()
    model = FullBatchGNN(11, 8, 2, 4, convolution=convolution)
    expected = pyg(11, 8, 2, 4)
    expected.load_state_dict(model.state_dict())
    trainer = FullBatchTrainer(model, GraphSource(data))
    first = model(trainer.graph.propagation, trainer.ranks)
    theirs = expected(data.x, data.edge_index)

    # Another pass overwrites the buffers before the first one's backward.
    model(trainer.graph.propagation, trainer.ranks)
    functional.mse_loss(first.sigmoid(), torch.ones(53, 4)).backward()
    functional.mse_loss(theirs.sigmoid(), torch.ones(53, 4)).backward()

    torch.testing.assert_close(first, theirs)
    for ours, reference in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, reference.grad)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("convolution", "pyg"), [("gcn", GCN), ("sage", GraphSAGE)])
def test_state_dict_goes_to_pyg_and_back(convolution, pyg, bias):
    model = FullBatchGNN(11, 8, 3, 4, convolution=convolution, bias=bias)
    other = pyg(11, 8, 3, 4, bias=bias)

    other.load_state_dict(model.state_dict())
    model.load_state_dict(other.state_dict())


def test_full_batch_gnn_starts_as_pyg_does():
    torch.manual_seed(5)
    ours = FullBatchGNN(11, 8, 3, 4)
    torch.manual_seed(5)
    theirs = GCN(11, 8, 3, 4)

    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_full_batch_gnn_rejects_symmetric_sage():
    with pytest.raises(ValueError, match="expected 'mean' for 'sage'"):
        FullBatchGNN(4, 4, 2, 4, convolution="sage", normalization="symmetric")
