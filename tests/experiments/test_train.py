import pytest

from experiments import placement, train


def test_run_learns_from_the_neighbourhood(small_options, device):
    options = {**small_options, "epochs": 8}

    (row,) = train.run(store=placement.mapped, device=str(device), lr=0.02, **options)

    assert row["test_accuracy"] > 0.7
    assert row["device"] == str(device)
    assert row["rows"] == ("mapped" if device.type == "cuda" else "host")


def test_run_times_every_stage(small_options, device):
    (row,) = train.run(store=placement.mapped, device=str(device), **small_options)

    stages_s = row["sample_s"] + row["gather_s"] + row["train_s"]
    assert stages_s > 0
    assert row["epoch_min_s"] <= row["epoch_s"] <= row["epoch_max_s"]
    assert row["gather_gb_per_s"] > 0


def test_run_repeats_itself_for_a_seed(small_options, device):
    options = {**small_options, "repeatable": device.type == "cuda"}

    rows = [
        train.run(store=placement.mapped, device=str(device), seed=seed, **options)[0]
        for seed in (7, 7, 8)
    ]

    assert rows[0]["loss"] == rows[1]["loss"]
    assert rows[0]["test_accuracy"] == rows[1]["test_accuracy"]
    assert rows[0]["loss"] != rows[2]["loss"]


def test_run_trains_alike_wherever_rows_live(small_options, device):
    stores = [placement.mapped, placement.staged]
    stores += [placement.on_device] if device.type == "cuda" else []

    losses = [
        train.run(store=store, device=str(device), **small_options)[0]["loss"] for store in stores
    ]

    # Batches are equal; atomics in the scatter of a GPU add in any order.
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-2)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("epochs", 0, r"epochs \(0\) must be a whole number, 1 or more"),
        ("epochs", "many", "epochs"),
        ("batch_size", 1.5, "batch_size"),
        ("lr", -1, r"lr \(-1\) must be a number"),
        ("lr", "fast", "lr"),
        ("weight_decay", None, "weight_decay"),
        ("num_neighbors", 5, r"num_neighbors \(5\) must be a list"),
        ("num_neighbors", [], "num_neighbors"),
        ("num_neighbors", [5, -2], "num_neighbors"),
        ("num_neighbors", [5, 5, 5], "num_neighbors has 3 hops, but GraphSAGE has 2 layers"),
        ("device", "tpu", "device"),
    ],
)
def test_run_rejects_values_without_meaning(small_options, option, value, message):
    with pytest.raises(ValueError, match=message):
        train.run(store=placement.mapped, **{**small_options, option: value})
