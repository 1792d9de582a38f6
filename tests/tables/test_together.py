import pytest
import torch

from pyg_direct.memory import MappedArray
from pyg_direct.tables import DeviceTable, DiskTable, HostTable, Request, TieredTable, gather_all

NUM_ROWS = 5_000
# Some make pairs: rows of whole words with each other, those of odd bytes with each other.
ROWS = {
    "x": ((33,), torch.float32),
    "y": ((), torch.int64),
    "mask": ((), torch.bool),
    "half": ((7,), torch.bfloat16),
    "byte": ((3,), torch.uint8),
    "empty": ((0,), torch.float32),
    "z": ((2, 300), torch.float32),
}


def _values():
    return {
        name: torch.randint(0, 2, (NUM_ROWS, *shape)).to(dtype)
        for name, (shape, dtype) in ROWS.items()
    }


def _count_launches(monkeypatch):
    launched = []
    gather_with = HostTable.gather_with

    def spy(self, other, request, plans):
        if self.row_bytes >= other.row_bytes:
            launched.append({self.name, other.name})
        return gather_with(self, other, request, plans)

    monkeypatch.setattr(HostTable, "gather_with", spy)
    return launched


@pytest.mark.parametrize("num_ids", [0, 1, 2_000])
@pytest.mark.parametrize("is_trusted", [False, True])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_every_table_gives_its_rows(device, num_ids, is_trusted, is_sorted):
    values = _values()
    tables = [HostTable(MappedArray(each), device, name=name) for name, each in values.items()]
    ids = torch.randint(NUM_ROWS, (num_ids,))
    ids = ids.sort().values if is_sorted else ids
    request = Request(
        ids.to(device), is_trusted=is_trusted, is_sorted=is_sorted, is_background=True
    )

    found = gather_all(tables, request)

    for rows, each in zip(found, values.values(), strict=True):
        assert rows.device.type == device.type
        assert torch.equal(rows.cpu(), each[ids])


def test_all_kinds_of_tables_together(device):
    values = _values()
    tables = [
        HostTable(MappedArray(values["x"]), device),
        DeviceTable(values["y"].to(device)),
        TieredTable(MappedArray(values["z"]), device),
        DiskTable(MappedArray(values["y"]), device),
        TieredTable(MappedArray(values["y"]), device),
    ]
    tables[2].set_hot(torch.arange(0, NUM_ROWS, 3))
    ids = torch.randint(NUM_ROWS, (2_000,))

    found = gather_all(tables, Request(ids.to(device), is_trusted=True, is_background=True))

    for rows, name in zip(found, ("x", "y", "z", "y", "y"), strict=True):
        assert torch.equal(rows.cpu(), values[name][ids])


def test_no_tables(device):
    assert gather_all([], Request(torch.arange(3))) == []


def test_a_closed_table_is_refused(device):
    tables = [HostTable(MappedArray(each), device) for each in (torch.ones(9, 3), torch.ones(9))]
    tables[1].close()

    with pytest.raises(ValueError, match="closed; put the tensor again"):
        gather_all(
            tables, Request(torch.arange(3, device=device), is_trusted=True, is_background=True)
        )


@pytest.mark.gpu
def test_tables_of_one_store_make_pairs(monkeypatch):
    launched = _count_launches(monkeypatch)
    device = torch.device("cuda", 0)
    tables = [HostTable(MappedArray(each), device, name=name) for name, each in _values().items()]
    ids = torch.arange(2_000, device=device)

    gather_all(tables, Request(ids, is_trusted=True, is_sorted=True, is_background=True))
    assert launched == [{"x", "y"}, {"mask", "byte"}]

    gather_all(tables, Request(ids, is_sorted=True, is_background=True))
    assert len(launched) == 2


@pytest.mark.gpu
def test_hot_rows_and_counted_hits_are_read_alone(monkeypatch):
    launched = _count_launches(monkeypatch)
    device, values = torch.device("cuda", 0), _values()
    first, second = (TieredTable(MappedArray(values[name]), device) for name in ("x", "y"))
    request = Request(torch.arange(2_000, device=device), is_trusted=True, is_background=True)

    second.count_hits()
    gather_all([first, second], request)
    assert second.hits.num_rows == 2_000
    second.count_hits(False)
    first.set_hot(torch.arange(10))
    gather_all([first, second], request)
    assert launched == []

    first.set_hot(torch.arange(0))
    gather_all([first, second], request)
    assert len(launched) == 1
