"""Answer one request from several tables."""

from collections.abc import Sequence

from torch import Tensor

from pyg_direct.tables.host import HostTable
from pyg_direct.tables.request import Request
from pyg_direct.tables.table import Table


def gather_all(tables: Sequence[Table], request: Request) -> list[Tensor]:
    """Return the rows of a request from each table, two at a time by one launch where that can be.

    Parameters
    ----------
    tables : sequence of Table
        Open, on one device.
    request : Request
        Of all of them.

    Returns
    -------
    list of Tensor
        As ``Table.gather`` returns them.
    """
    rows: dict[int, Tensor] = {}
    waiting: dict[int, tuple[int, HostTable]] = {}
    for place, table in enumerate(tables):
        piece = table.pair_piece(request) if isinstance(table, HostTable) else None
        if piece is None or not isinstance(table, HostTable):
            rows[place] = table.gather(request)
        elif piece in waiting:
            partner, other = waiting.pop(piece)
            rows[partner], rows[place] = other.gather_with(table, request)
        else:
            waiting[piece] = place, table
    for place, table in waiting.values():
        rows[place] = table.gather(request)
    return [rows[place] for place in range(len(tables))]
