import pytest
import torch

from pyg_direct.fullbatch import memory
from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.hidden_rows import HiddenRows
from pyg_direct.fullbatch.input_rows import ResidentRows, StreamedRows
from pyg_direct.fullbatch.layer_weights import LayerWeights
from pyg_direct.fullbatch.nonlinearity import Nonlinearity

NUM_ROWS, ROW_BYTES = 33, 7 * 4


def _hidden_rows(device, **table_args):
    architecture = Architecture(widths=(7, 5, 5, 3), dropout=0.5)
    args = {"dtype": torch.float32, "device": device}
    kind = StreamedRows if table_args else ResidentRows
    inputs = kind(NUM_ROWS, 7, **args, **table_args)
    x = torch.randn(NUM_ROWS, 7, generator=torch.Generator().manual_seed(1))
    inputs.write(0, 0, x.to(device))
    buffers = memory.allocate_buffers(architecture, (NUM_ROWS,), 0, slice_width=5, **args)
    node = torch.arange(NUM_ROWS, device=device)
    nonlinearity = Nonlinearity(architecture, node)
    return x, HiddenRows(nonlinearity, inputs=inputs, buffers=buffers)


def _weights(device):
    generator = torch.Generator().manual_seed(2)
    neighbor = torch.randn(5, 7, generator=generator).to(device)
    return [LayerWeights(neighbor=neighbor, bias=torch.ones(5, device=device))] * 3


@pytest.mark.parametrize("chunk_elements", [(1 << 23, 1 << 27), (20, 20)], ids=["whole", "chunks"])
@pytest.mark.parametrize("staging_bytes", [None, 10 * ROW_BYTES], ids=["resident", "streamed"])
@pytest.mark.parametrize("call", ["finished", "again"])
def test_layer_one_is_computed_anew(call, staging_bytes, chunk_elements, device, monkeypatch):
    monkeypatch.setattr(memory, "CHUNK_ELEMENTS", chunk_elements)
    table_args = {} if staging_bytes is None else {"staging_bytes": staging_bytes}
    x, hidden = _hidden_rows(device, **table_args)
    weights = _weights(device)
    rows, inputs = torch.full((NUM_ROWS, 5), float("nan")), torch.empty(NUM_ROWS, 7)

    for chunk in getattr(hidden, call)(1, weights, None):
        rows[chunk.part], inputs[chunk.part] = chunk.rows.cpu(), chunk.inputs.cpu()

    expected = (x @ weights[0].neighbor.cpu().t() + 1.0).relu()
    torch.testing.assert_close(rows, expected)
    assert torch.equal(inputs, x)


def test_dropout_falls_on_the_same_elements_again(device, monkeypatch):
    monkeypatch.setattr(memory, "CHUNK_ELEMENTS", (20, 20))
    _, hidden = _hidden_rows(device)
    weights = _weights(device)

    first, second = (
        torch.cat([chunk.rows.clone() for chunk in call(1, weights, 7)])
        for call in (hidden.finished, hidden.again)
    )

    assert torch.equal(first, second)
    assert (first == 0.0).float().mean() > 0.5


def test_finished_activates_in_place_once(device):
    _, hidden = _hidden_rows(device)
    stored = hidden.buffers.output_of(1)
    before = torch.randn_like(stored)
    stored.copy_(before)

    for call in (hidden.finished, hidden.again):
        rows = torch.cat([chunk.rows for chunk in call(2, _weights(device), None)])
        assert torch.equal(rows, before.relu())
