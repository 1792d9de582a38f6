import pytest

from experiments.table import SCREEN_WIDTH, read_table, render_table, write_table

ROWS = [{"method": "direct", "gb_per_s": 1 / 3}, {"method": "staged", "row_bytes": 128}]


def test_write_table_is_read_back(tmp_path):
    path = tmp_path / "result.csv"

    write_table(path, ROWS, {"gpu": "none", "command": "two\nlines: and more"})

    rows, header = read_table(path)
    assert rows[0] == {"method": "direct", "gb_per_s": str(1 / 3), "row_bytes": ""}
    assert header == {"gpu": "none", "command": "two lines: and more"}


def test_render_table_has_a_line_a_row():
    lines = render_table(ROWS).splitlines()

    assert lines[0].split() == ["method", "gb_per_s", "row_bytes"]
    assert lines[1].split() == ["direct", "0.3333", "-"]


@pytest.mark.parametrize("num_columns", [1, 40], ids=["narrow", "wide"])
def test_render_table_turns_a_wide_table(num_columns):
    row = {f"column_{number}": number for number in range(num_columns)}

    lines = render_table([row]).splitlines()

    assert max(map(len, lines)) <= SCREEN_WIDTH
    assert len(lines) == max(num_columns, 2)
