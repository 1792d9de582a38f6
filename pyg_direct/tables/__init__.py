"""Feature tensors, wherever their rows are, behind one interface: ``Table``."""

from pyg_direct.tables.device import DeviceTable
from pyg_direct.tables.disk import DiskTable
from pyg_direct.tables.host import HostTable
from pyg_direct.tables.hot import HitCount
from pyg_direct.tables.plan import GatherPlan, plan_gather
from pyg_direct.tables.request import Request
from pyg_direct.tables.table import Table
from pyg_direct.tables.tiered import TieredTable
from pyg_direct.tables.together import gather_all

__all__ = [
    "DeviceTable",
    "DiskTable",
    "GatherPlan",
    "HitCount",
    "HostTable",
    "Request",
    "Table",
    "TieredTable",
    "gather_all",
    "plan_gather",
]
