import pytest
import torch

from experiments import placement

LOADER = {"num_neighbors": [4, 4], "batch_size": 32, "shuffle": False, "seed": 1}


def _batches(placed, data):
    return list(placed.loader(input_nodes=data.train_mask, **LOADER))


def test_staged_gives_the_batches_of_mapped(small_graph, device):
    data = small_graph()

    mapped, staged = (
        _batches(place(data, device=device), data) for place in (placement.mapped, placement.staged)
    )

    assert len(mapped) == len(staged) == -(-int(data.train_mask.sum()) // LOADER["batch_size"])
    for ours, baseline in zip(mapped, staged, strict=True):
        assert ours.batch_size == baseline.batch_size
        for name in ("x", "y", "n_id", "edge_index", "train_mask"):
            assert ours[name].device.type == baseline[name].device.type == device.type
            assert torch.equal(ours[name], baseline[name])


def test_staged_gathers_the_rows_of_the_nodes(small_graph, device):
    data = small_graph()

    batches = _batches(placement.staged(data, device=device), data)

    for batch in batches:
        assert torch.equal(batch.x.cpu(), data.x[batch.n_id.cpu()])


def test_staged_leaves_the_data_as_it_was(small_graph):
    data = small_graph()
    keys = data.keys()

    _batches(placement.staged(data, device=torch.device("cpu")), data)

    assert data.keys() == keys


def test_on_device_refuses_a_cpu(small_graph):
    with pytest.raises(ValueError, match=r"device of this run is cpu; use store=mapped"):
        placement.on_device(small_graph(), device=torch.device("cpu"))


def test_placements_on_a_cpu_leave_rows_in_host_memory(small_graph):
    places = (placement.mapped, placement.staged)

    placed = [place(small_graph(), device=torch.device("cpu")) for place in places]

    assert [(each.store, each.rows) for each in placed] == [("mapped", "host"), ("staged", "host")]


@pytest.mark.gpu
def test_placements_say_where_rows_live(small_graph):
    data = small_graph()
    places = (placement.mapped, placement.on_device, placement.staged)

    placed = [place(data, device=torch.device("cuda")) for place in places]

    assert [each.rows for each in placed] == ["mapped", "device", "staged"]
    assert [each.store for each in placed] == ["mapped", "device", "staged"]
    assert not any(value.is_cuda for _, value in data)
