import pytest
import torch

from pyg_direct.fullbatch import outer_product as module
from pyg_direct.fullbatch.outer_product import outer_product


@pytest.mark.parametrize("scratch_elements", [0, 64 * 5 * 7], ids=["whole", "pieces"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 64, 257])
def test_outer_product_equals_mm(num_rows, dtype, scratch_elements, monkeypatch):
    monkeypatch.setattr(module, "MIN_PIECE_ROWS", 1)
    left, right = torch.randn(num_rows, 5).to(dtype), torch.randn(num_rows, 7).to(dtype)
    scratch = torch.full((scratch_elements,), float("nan"), dtype=dtype)

    result = outer_product(left, right, scratch)

    expected = (left.double().t() @ right.double()).to(result.dtype)
    # bfloat16 products are rounded once a piece; sums of 257 numbers reach about 16.
    tolerance = {torch.bfloat16: 0.3, torch.float32: 1e-4, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(result, expected, rtol=0, atol=tolerance)
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
