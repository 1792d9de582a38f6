"""Feature tensors, wherever their rows are, behind one interface: ``Table``."""

from pyg_direct.tables.device import DeviceTable
from pyg_direct.tables.host import HostTable
from pyg_direct.tables.table import Table

__all__ = ["DeviceTable", "HostTable", "Table"]
