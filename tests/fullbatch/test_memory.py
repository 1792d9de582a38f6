import pytest
import torch

from pyg_direct.fullbatch import FullBatchGNN, FullBatchTrainer, GraphSource
from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.memory import MemoryPlan, MemoryReport, allocate_buffers, plan_buffers
from tests.fullbatch.graphs import random_graph


@pytest.mark.parametrize("sizes", [(31,), (17, 16), (11, 11, 10)], ids=str)
@pytest.mark.parametrize("widths", [(7, 5), (7, 8, 3), (100, 16, 16, 40)], ids=str)
def test_allocate_buffers_takes_what_plan_buffers_says(widths, sizes):
    architecture = Architecture(widths=widths)

    plan = plan_buffers(architecture, sizes, 0, 4)
    buffers = allocate_buffers(
        architecture, sizes, 0, dtype=torch.float32, device=torch.device("cpu")
    )

    assert sum(plan.values()) == buffers.num_bytes


def test_plan_buffers_stays_below_the_papers_formula():
    """Three layers of 128 on eight ranks, as in the paper: L + 3 buffers of 4 n d / P bytes."""
    num_nodes, width, num_ranks = 111_059_956, 128, 8
    sizes = (num_nodes // num_ranks,) * num_ranks

    plan = plan_buffers(Architecture(widths=(128, width, width, width)), sizes, 0, 4)

    assert sum(plan.values()) - plan["chunk"] <= 6 * 4 * num_nodes * width / num_ranks


@pytest.mark.parametrize("features", ["device", "host"])
@pytest.mark.parametrize("convolution", ["gcn", "sage"])
def test_trainer_holds_what_was_predicted(convolution, features):
    data = random_graph(200)
    data.val_mask = data.test_mask
    model = FullBatchGNN(11, 8, 3, 4, convolution=convolution, dropout=0.5)
    with FullBatchTrainer(model, GraphSource(data), features=features) as trainer:
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
