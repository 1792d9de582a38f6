"""P = 1 to 4 against PyG on one process: one spawned group serves all cases."""

import time

import pytest
import torch
from torch.multiprocessing import ProcessRaisedException

from pyg_direct.fullbatch import Ranks, joined_ranks, spawn_ranks
from tests.fullbatch import rank_cases
from tests.fullbatch.graphs import PLANETOID, pyg_run

PLANETOID_NAMES = ["Cora", "CiteSeer"]
DROPOUT_NAMES = ["dropout", "leaky dropout"]
PYG_NAMES = [name for name in rank_cases.CASES if name not in DROPOUT_NAMES]
# Sums over vertices are taken in another order: float32 agrees to this, in losses and gradients.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def _need_planetoid(name):
    if name in PLANETOID_NAMES and not (PLANETOID / name).exists():
        pytest.skip(f"{name} is not at {PLANETOID}")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    present = [name for name in PLANETOID_NAMES if (PLANETOID / name).exists()]
    names = [*rank_cases.CASES, *present]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = {name: rank_cases.run_case(name, Ranks(), folder) for name in names}
    torch.set_num_threads(threads)
    spawn_ranks(rank_cases.run_all, 4, args=(str(folder), names))
    loaded = {p: torch.load(folder / f"{p}.pt", weights_only=False) for p in (2, 3, 4)}
    loaded[1] = (alone, [], 0.0)
    return folder, loaded


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4], ids="P{}".format)
@pytest.mark.parametrize("name", PYG_NAMES + PLANETOID_NAMES)
def test_train_epoch_equals_pyg(results, name, num_ranks):
    _need_planetoid(name)
    folder, by_ranks = results
    result = by_ranks[num_ranks][0][name]
    data = rank_cases.graph_of(name, folder)
    args = rank_cases.model_args_of(name, data)
    convolution = args.pop("convolution", "gcn")

    losses, gradients = pyg_run(data, convolution, result["state"], rank_cases.EPOCHS, **args)

    torch.testing.assert_close(result["losses"], losses, **TOLERANCE)
    torch.testing.assert_close(result["gradients"], gradients, **TOLERANCE)


@pytest.mark.parametrize("num_ranks", [2, 3, 4], ids="P{}".format)
@pytest.mark.parametrize("name", rank_cases.CASES)
def test_train_epoch_does_not_depend_on_num_ranks(results, name, num_ranks):
    alone, several = results[1][1][0][name], results[1][num_ranks][0][name]

    torch.testing.assert_close(several["losses"], alone["losses"], **TOLERANCE)
    torch.testing.assert_close(several["gradients"], alone["gradients"], **TOLERANCE)
    assert several["accuracy"] == pytest.approx(alone["accuracy"], abs=0.05)
    assert several["rows"] >= 1.0


@pytest.mark.parametrize("num_ranks", [2, 3, 4], ids="P{}".format)
def test_multiply_overlaps_broadcast_and_product(results, num_ranks):
    _, spans, error = results[1][num_ranks]
    broadcast = {span.stage: span for span in spans if span.kind == "broadcast"}
    products = [span for span in spans if span.kind == "product"]
    received = list(range(1, num_ranks))

    assert error < 1e-5
    assert [span.stage for span in products] == [0, *received]
    for turn, product in enumerate(products[:-1]):
        # While a product runs, the next stage's broadcast is already under way ...
        assert broadcast[received[turn]].start_s <= product.start_s
        assert broadcast[received[turn]].stop_s >= product.stop_s
    for turn in range(2, len(received)):
        # ... and a buffer is received into again only after the product that reads it.
        assert broadcast[received[turn]].start_s >= products[turn - 1].stop_s


@pytest.mark.parametrize(
    ("case", "timeout_s", "message"),
    [
        pytest.param(rank_cases.die_on_rank_one, 60.0, "gave up on the broadcast", id="dies"),
        pytest.param(rank_cases.sleep_on_rank_one, 2.0, "gave up on the start", id="hangs"),
    ],
)
def test_spawn_ranks_ends_when_a_rank_is_lost(case, timeout_s, message):
    start = time.perf_counter()

    with pytest.raises(ProcessRaisedException, match=message):
        spawn_ranks(case, 2, timeout_s=timeout_s)

    # Starting two processes takes most of it; nobody waits out the minute.
    assert time.perf_counter() - start < 45.0


def test_trainer_rejects_ranks_that_disagree():
    with pytest.raises(ProcessRaisedException, match="seed differs between ranks"):
        spawn_ranks(rank_cases.disagree, 2, timeout_s=30.0)


def test_joined_ranks_names_a_missing_rank():
    server = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    with (
        pytest.raises(RuntimeError, match="fewer than 2 ranks within 2 s"),
        joined_ranks("cpu", timeout_s=2.0, num_ranks=2, store=server, rank=0),
    ):
        pass


def test_joined_ranks_rejects_wrong_world_size(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")

    with (
        pytest.raises(ValueError, match="num_ranks = 3, but 2 processes were started"),
        joined_ranks("cpu", num_ranks=3),
    ):
        pass


@pytest.mark.multi_gpu
@pytest.mark.parametrize("num_ranks", [2, 4], ids="P{}".format)
def test_train_epoch_equals_pyg_on_gpus(num_ranks, tmp_path):
    if torch.cuda.device_count() < num_ranks:
        pytest.skip(f"needs {num_ranks} GPUs")
    names = PYG_NAMES

    spawn_ranks(rank_cases.run_all, num_ranks, args=(str(tmp_path), names), device_type="cuda")

    results, _, error = torch.load(tmp_path / f"{num_ranks}.pt", weights_only=False)
    assert error < 1e-5
    for name in names:
        data = rank_cases.graph_of(name, tmp_path)
        args = rank_cases.model_args_of(name, data)
        convolution = args.pop("convolution", "gcn")
        state = {key: value.cpu() for key, value in results[name]["state"].items()}
        losses, gradients = pyg_run(data, convolution, state, rank_cases.EPOCHS, **args)
        torch.testing.assert_close(results[name]["losses"], losses, **TOLERANCE)
        for ours, theirs in zip(results[name]["gradients"], gradients, strict=True):
            torch.testing.assert_close([g.cpu() for g in ours], theirs, **TOLERANCE)
