import pytest
import torch

from pyg_direct.fullbatch import FullBatchGNN, FullBatchTrainer, GraphSource
from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.memory import (
    MemoryPlan,
    MemoryReport,
    allocate_buffers,
    chunk_rows,
    plan_buffers,
)
from tests.fullbatch.graphs import random_graph


@pytest.mark.parametrize(
    ("num_rows", "width", "expected"),
    [
        pytest.param(2_449_029, 256, 489_805, id="products"),
        pytest.param(232_965, 256, 46_593, id="reddit"),
        pytest.param(111_059_956, 128, 1 << 20, id="most"),
        pytest.param(100_000, 256, 1 << 15, id="least"),
        pytest.param(33, 256, 33, id="one chunk"),
        pytest.param(0, 0, 1, id="nothing"),
    ],
)
def test_chunk_rows_is_a_fifth_within_bounds(num_rows, width, expected):
    assert chunk_rows(num_rows, width) == expected


@pytest.mark.parametrize("sizes", [(31,), (17, 16), (11, 11, 10)], ids=str)
@pytest.mark.parametrize("slice_width", [1, 3])
@pytest.mark.parametrize("convolution", ["gcn", "sage"])
@pytest.mark.parametrize("widths", [(7, 5), (7, 8, 3), (100, 16, 16, 40)], ids=str)
def test_allocate_buffers_takes_what_plan_buffers_says(widths, convolution, slice_width, sizes):
    architecture = Architecture(widths=widths, convolution=convolution)

    plan = plan_buffers(architecture, sizes, 0, slice_width=slice_width, element_bytes=4)
    buffers = allocate_buffers(
        architecture,
        sizes,
        0,
        slice_width=slice_width,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )

    assert sum(plan.values()) == buffers.num_bytes


@pytest.mark.parametrize(("column_block", "share"), [(None, 5 / 6), (64, 3.5 / 6)], ids=str)
def test_plan_buffers_stays_below_the_papers_formula(column_block, share):
    """Three layers of 128 on eight ranks, as in the paper: L + 3 buffers of 4 n d / P bytes."""
    num_nodes, width, num_ranks = 111_059_956, 128, 8
    sizes = (num_nodes // num_ranks,) * num_ranks
    architecture = Architecture(widths=(128, width, width, width))
    slice_width = architecture.slice_width(column_block)

    plan = plan_buffers(architecture, sizes, 0, slice_width=slice_width, element_bytes=4)

    papers_bytes = 6 * 4 * num_nodes * width / num_ranks
    assert sum(plan.values()) - plan["chunks"] <= share * papers_bytes


@pytest.mark.parametrize(
    ("widths", "num_nodes", "column_block", "element_bytes", "limit_gib"),
    [
        pytest.param((100, 256, 256, 47), 2_449_029, 64, 4, 4.4, id="products"),
        pytest.param((100, 256, 256, 47), 2_449_029, 64, 2, 2.2, id="products bfloat16"),
        pytest.param((602, 256, 256, 41), 232_965, 64, 4, 0.45, id="reddit"),
    ],
)
def test_plan_buffers_holds_no_full_width_product(
    widths, num_nodes, column_block, element_bytes, limit_gib
):
    plan = plan_buffers(
        Architecture(widths=widths),
        (num_nodes,),
        0,
        slice_width=column_block,
        element_bytes=element_bytes,
    )

    assert sum(plan.values()) < limit_gib * 2**30


@pytest.mark.parametrize("column_block", [None, 3, 7], ids=["all columns", "3 columns", "padded"])
@pytest.mark.parametrize("features", ["device", "host"])
@pytest.mark.parametrize("convolution", ["gcn", "sage"])
def test_trainer_holds_what_was_predicted(convolution, features, column_block):
    data = random_graph(200)
    data.val_mask = data.test_mask
    model = FullBatchGNN(11, 8, 3, 4, convolution=convolution, dropout=0.5)
    placement = {"features": features, "column_block": column_block}
    with FullBatchTrainer(model, GraphSource(data), **placement) as trainer:
        plan = trainer.watch_memory()
        trainer.train_epoch()

        report = trainer.memory_report()

    assert report.ratio == pytest.approx(1.0)
    assert report.predicted_bytes == plan.total_bytes


def test_memory_report_says_percent():
    report = MemoryReport(predicted_bytes=2**30, peak_bytes=2**30 + 2**29)

    assert str(report) == "peak 1.500 GiB, +50.0 % of the predicted 1.000 GiB"
    assert str(MemoryPlan(parts={"input": 2**30})) == "predicted peak 1.000 GiB (input 1.000)"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param({"widths": (4,)}, "widths = ", id="widths"),
        pytest.param({"widths": (4, 4), "dropout": 1.0}, "dropout = 1.0", id="dropout"),
        pytest.param({"widths": (4, 4), "convolution": "gat"}, "convolution = 'gat'", id="conv"),
        pytest.param({"widths": (4, 4), "activation": "elu"}, "activation = 'elu'", id="act"),
        pytest.param({"widths": (4, 4), "negative_slope": -1.0}, "negative_slope", id="slope"),
    ],
)
def test_architecture_rejects(args, message):
    with pytest.raises(ValueError, match=message):
        Architecture(**args)
