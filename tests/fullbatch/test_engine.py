import pytest
import torch

from pyg_direct.fullbatch.engine import (
    EngineChoice,
    choose_engine,
    column_block_of,
    padded_width,
)

CPU = torch.device("cpu")
REDDIT, PRODUCTS = 232_965, 2_449_029


@pytest.mark.parametrize("l2_bytes", [50 * 2**20, 60 * 2**20], ids=["50 MiB", "60 MiB"])
@pytest.mark.parametrize(
    ("num_nodes", "element_bytes", "expected"),
    [
        pytest.param(REDDIT, 4, 64, id="reddit"),
        pytest.param(REDDIT, 2, 128, id="reddit bfloat16"),
        pytest.param(PRODUCTS, 4, 64, id="products"),
        pytest.param(PRODUCTS, 2, 64, id="products bfloat16"),
        pytest.param(2_708, 4, 256, id="cora"),
    ],
)
def test_column_block_of_gives_what_was_fastest(num_nodes, element_bytes, expected, l2_bytes):
    assert column_block_of(num_nodes * element_bytes, l2_bytes) == expected


def test_choose_engine_takes_the_library_and_all_columns_on_the_cpu():
    choice = choose_engine(None, None, num_nodes=REDDIT, dtype=torch.float32, device=CPU)

    assert choice == EngineChoice(engine="library", column_block=None)


@pytest.mark.parametrize(
    ("width", "element_bytes", "expected"),
    [
        (64, 4, 64),
        (47, 4, 48),
        (47, 2, 48),
        (41, 4, 41),
        (1, 4, 1),
        (7, 4, 8),
        (3, 8, 4),
        (0, 4, 0),
    ],
)
def test_padded_width_pads_what_straddles_sectors(width, element_bytes, expected):
    assert padded_width(width, element_bytes) == expected


@pytest.mark.parametrize("element_bytes", [2, 4, 8])
def test_padded_width_of_a_slice_is_enough_for_narrower_ones(element_bytes):
    widths = [padded_width(width, element_bytes) for width in range(300)]

    assert widths == sorted(widths)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "engine"),
    [(torch.float32, "kernel"), (torch.bfloat16, "kernel"), (torch.float64, "library")],
    ids=str,
)
def test_choose_engine_takes_the_kernel_on_a_gpu(dtype, engine):
    choice = choose_engine(None, None, num_nodes=1, dtype=dtype, device=torch.device("cuda"))

    assert choice == EngineChoice(engine=engine, column_block=256 if engine == "kernel" else None)


@pytest.mark.parametrize(
    ("engine", "column_block", "message"),
    [
        pytest.param("magic", None, "engine = 'magic'", id="engine"),
        pytest.param("library", 0, "column_block = 0", id="block"),
        pytest.param("kernel", 48, "column_block = 48 with engine = 'kernel'", id="kernel block"),
    ],
)
def test_choose_engine_rejects(engine, column_block, message, monkeypatch):
    monkeypatch.setattr("pyg_direct.fullbatch.engine.IS_SIMULATOR", True)

    with pytest.raises(ValueError, match=message):
        choose_engine(engine, column_block, num_nodes=9, dtype=torch.float32, device=CPU)


def test_choose_engine_rejects_the_kernel_on_the_cpu(monkeypatch):
    monkeypatch.setattr("pyg_direct.fullbatch.engine.IS_SIMULATOR", False)

    with pytest.raises(ValueError, match="expected a CUDA device: use 'library'"):
        choose_engine("kernel", None, num_nodes=9, dtype=torch.float32, device=CPU)
