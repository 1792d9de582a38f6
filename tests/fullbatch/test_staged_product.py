import pytest
import torch

from pyg_direct.fullbatch import Ranks
from pyg_direct.fullbatch.staged_product import StagedProduct, Trace
from pyg_direct.fullbatch.tiles import cut_tiles

ALONE = Ranks()


def _identity(num_rows, num_filled):
    """Ones on the first ``num_filled`` places of the diagonal."""
    rowptr = torch.arange(num_rows + 1).clamp(max=num_filled)
    return cut_tiles(rowptr, torch.arange(num_filled), torch.ones(num_filled), (0, num_rows))


@pytest.mark.parametrize("num_filled", [0, 3, 5], ids=["empty", "some rows", "every row"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["overwrite", "accumulate"])
@pytest.mark.parametrize("padding", [0, 2], ids=["plain", "padded"])
@pytest.mark.parametrize("bias", [None, torch.tensor([1.0, 2.0, 4.0])], ids=["no bias", "bias"])
def test_multiply_overwrites_or_adds(bias, padding, accumulate, num_filled):
    product = StagedProduct(ALONE, (5,))
    operand, start = torch.randn(5, 3), torch.ones(5, 3) if accumulate else torch.zeros(5, 3)
    out = start.clone() if accumulate else torch.full((5, 3), float("nan"))
    expected = start if bias is None else start + bias
    expected[:num_filled] += operand[:num_filled]
    padded = torch.cat([operand, torch.full((5, padding), float("nan"))], dim=1)

    product.multiply(_identity(5, num_filled), padded, out, accumulate=accumulate, bias=bias)

    torch.testing.assert_close(out, expected)


def test_multiply_rejects_wrong_shapes():
    product = StagedProduct(ALONE, (5,))

    for shape in [(5, 4), (4, 3)]:
        with pytest.raises(ValueError, match=rf"out \({shape[0]}, {shape[1]}\) came, expected 5 "):
            product.multiply(_identity(5, 5), torch.zeros(5, 3), torch.zeros(shape))


def test_multiply_rejects_a_small_buffer():
    ranks = Ranks(num_ranks=2)
    product = StagedProduct(ranks, (5, 5), buffers=[torch.empty(14)])

    with pytest.raises(ValueError, match="receive buffer of 14 elements, expected 15 or more"):
        product.multiply((), torch.zeros(5, 3), torch.zeros(5, 3))


def test_staged_product_rejects_missing_buffers():
    with pytest.raises(ValueError, match="buffers: 1 came, expected 2 or more"):
        StagedProduct(Ranks(num_ranks=3), (1, 1, 1), buffers=[torch.empty(1)])


def test_trace_on_one_rank_has_a_product_and_no_broadcast():
    product = StagedProduct(ALONE, (5,))
    product.trace = Trace(ALONE.device)

    product.multiply(_identity(5, 5), torch.zeros(5, 3), torch.zeros(5, 3))

    (span,) = product.trace.spans()
    assert (span.kind, span.stage) == ("product", 0)
    assert 0.0 <= span.start_s <= span.stop_s
