import pytest
import torch

from pyg_direct.fullbatch.input_rows import ResidentRows, StreamedRows


@pytest.mark.parametrize("num_rows", [1, 31, 33])
@pytest.mark.parametrize("kind", [ResidentRows, StreamedRows])
def test_rows_are_read_as_written(kind, num_rows, device):
    args = {"staging_bytes": 10 * 7 * 4} if kind is StreamedRows else {}
    table = kind(num_rows, 7, dtype=torch.float32, device=device, **args)
    rows = torch.randn(num_rows, 7)

    table.write(0, 0, rows[:, :3].to(device))
    table.write(0, 3, rows[:, 3:])

    pieces = [(start, piece.cpu()) for start, piece in table.pieces()]
    read = torch.empty(num_rows, 2, device=device)
    table.read(4, read)
    assert [start for start, _ in pieces] == list(range(0, num_rows, len(pieces[0][1])))
    assert torch.equal(torch.cat([piece for _, piece in pieces]), rows)
    assert torch.equal(read.cpu(), rows[:, 4:6])
    table.close()
    table.close()


def test_staging_bytes_of_equals_what_is_allocated(device):
    table = StreamedRows(33, 7, dtype=torch.float32, device=device)

    assert table.device_bytes == StreamedRows.staging_bytes_of(33, 28, device)
