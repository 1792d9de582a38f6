import numpy as np
import pytest

from pyg_direct.kernels import multiply, reference_multiply


def _to_bfloat16(numbers):
    """Round to bfloat16: the bits, and the same numbers as float32."""
    bits = numbers.astype(np.float32).view(np.uint32)
    bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def _matrix(counts, num_columns):
    rng = np.random.default_rng(42)
    rowptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    column = rng.integers(0, num_columns, rowptr[-1]).astype(np.int32)
    return rowptr, column, rng.random(rowptr[-1]).astype(np.float32)


@pytest.mark.parametrize("accumulate", [False, True], ids=["overwrite", "accumulate"])
@pytest.mark.parametrize(
    ("num_columns", "slice_columns"),
    [(1, 256), (31, 32), (33, 32), (70, 32), (70, 64), (70, 256), (64, 32), (64, 64)],
)
@pytest.mark.parametrize("number_type", ["float32", "bfloat16"])
def test_multiply_csr_equals_reference(
    number_type, num_columns, slice_columns, accumulate, kernel_memory
):
    rng = np.random.default_rng(7)
    rowptr, column, value = _matrix([0, 1, 3, 4, 9], 6)
    operand = rng.random((6, num_columns)).astype(np.float32)
    out = rng.random((5, num_columns)).astype(np.float32)
    if not accumulate:
        out.fill(np.nan)
    numbers = [value, operand, out]
    expected_numbers = [number.copy() for number in numbers]
    if number_type == "bfloat16":
        numbers, expected_numbers = zip(*map(_to_bfloat16, numbers), strict=True)

    arrays = [rowptr, column, numbers[0], reference_multiply.long_rows(rowptr), *numbers[1:]]
    with kernel_memory(*arrays) as memory:
        multiply.multiply_csr(
            *memory,
            num_rows=5,
            num_long_rows=0,
            num_columns=num_columns,
            number_type=number_type,
            accumulate=accumulate,
            slice_columns=slice_columns,
        )

    value, operand, expected = expected_numbers
    reference_multiply.multiply_csr(rowptr, column, value, operand, expected, accumulate=accumulate)
    if number_type == "bfloat16":
        # float32 sums may fall on the other side of a tie than float64 sums: one unit of 2**-8.
        result = (arrays[-1].astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(result, _to_bfloat16(expected)[1], rtol=2**-7)
    else:
        np.testing.assert_allclose(arrays[-1], expected, rtol=1e-5)


@pytest.mark.parametrize("accumulate", [False, True], ids=["overwrite", "accumulate"])
@pytest.mark.parametrize("number_type", ["float32", "bfloat16"])
def test_multiply_csr_adds_the_bias_once(number_type, accumulate, kernel_memory):
    counts = [0, 1, multiply.LONG_ROW_NONZEROS + 1]
    rowptr, column, value = _matrix(counts, 6)
    long_row = reference_multiply.long_rows(rowptr)
    # Small integers: every sum is exact in both types.
    value = np.zeros_like(value)
    value[[0, 1, 9]] = 1.0
    rng = np.random.default_rng(7)
    operand, out, bias = (
        rng.integers(0, 9, shape).astype(np.float32) for shape in [(6, 40), (3, 40), (40,)]
    )
    expected = out.copy()
    numbers = [value, operand, out, bias]
    if number_type == "bfloat16":
        numbers = [_to_bfloat16(number)[0] for number in numbers]

    arrays = [rowptr, column, numbers[0], long_row, *numbers[1:]]
    with kernel_memory(*arrays) as memory:
        multiply.multiply_csr(
            *memory[:6], bias=memory[6], num_rows=3, num_long_rows=1, num_columns=40,
            number_type=number_type, accumulate=accumulate, slice_columns=32,
        )  # fmt: skip

    reference_multiply.multiply_csr(
        rowptr, column, value, operand, expected, accumulate=accumulate, bias=bias
    )
    if number_type == "bfloat16":
        expected = _to_bfloat16(expected)[0]
    np.testing.assert_array_equal(numbers[2], expected)


def test_multiply_csr_leaves_what_lies_between_rows(kernel_memory):
    rowptr, column, value = _matrix([0, 1, 3, 4, 9], 6)
    operand = np.full((6, 36), np.nan, np.float32)
    operand[:, :33] = np.random.default_rng(7).random((6, 33))
    out, expected = np.full((5, 40), 7.0, np.float32), np.empty((5, 33), np.float32)

    arrays = (rowptr, column, value, reference_multiply.long_rows(rowptr), operand, out)
    with kernel_memory(*arrays) as memory:
        multiply.multiply_csr(
            *memory, num_rows=5, num_long_rows=0, num_columns=33, number_type="float32",
            accumulate=False, operand_stride=36, out_stride=40, slice_columns=32,
        )  # fmt: skip

    reference_multiply.multiply_csr(
        rowptr, column, value, operand[:, :33], expected, accumulate=False
    )
    np.testing.assert_allclose(out[:, :33], expected, rtol=1e-5)
    assert (out[:, 33:] == 7.0).all()


def test_multiply_csr_shares_long_rows(kernel_memory):
    rowptr, column, value = _matrix([2, multiply.LONG_ROW_NONZEROS + 5, 1], 50)
    operand = np.random.default_rng(7).random((50, 3)).astype(np.float32)
    long_row, out = reference_multiply.long_rows(rowptr), np.full((3, 3), np.nan, np.float32)
    expected = np.empty_like(out)

    with kernel_memory(rowptr, column, value, long_row, operand, out) as memory:
        multiply.multiply_csr(
            *memory, num_rows=3, num_long_rows=1, num_columns=3, number_type="float32",
            accumulate=False, slice_columns=32,
        )  # fmt: skip

    reference_multiply.multiply_csr(rowptr, column, value, operand, expected, accumulate=False)
    # Sums of a thousand numbers in float32, in another order.
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"slice_columns": 48}, {"number_type": "float64"}], ids=["slice", "type"]
)
def test_multiply_csr_rejects_unknown_options(wrong):
    options = {"slice_columns": 32, "number_type": "float32"} | wrong

    with pytest.raises(ValueError, match="expected one of"):
        multiply.multiply_csr(
            *[None] * 6, num_rows=1, num_long_rows=0, num_columns=1, accumulate=False, **options
        )
