"""Answer one request from several tables."""

from collections.abc import Sequence

from torch import Tensor

from pyg_direct.tables.host import HostTable
from pyg_direct.tables.plan import GatherPlan
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
    # By piece of a store: what looks for a partner.
    waiting: dict[int, tuple[int, HostTable, GatherPlan]] = {}
    for place, table in enumerate(tables):
        if not isinstance(table, HostTable) or (plan := table.pair_plan(request)) is None:
            rows[place] = table.gather(request)
        elif table.piece_bytes in waiting:
            partner, other, its_plan = waiting.pop(table.piece_bytes)
            rows[partner], rows[place] = other.gather_with(table, request, (its_plan, plan))
        else:
            waiting[table.piece_bytes] = place, table, plan
    for place, alone, _ in waiting.values():
        rows[place] = alone.gather(request)
    return [rows[place] for place in range(len(tables))]
