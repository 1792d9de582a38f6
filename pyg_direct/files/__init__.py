"""Graphs in a folder: saved so that a kill leaves the old or the new, opened by mapping."""

from pyg_direct.files.manifest import StoredGraphError
from pyg_direct.files.ogb import convert_ogb
from pyg_direct.files.opening import load
from pyg_direct.files.saving import save

__all__ = ["StoredGraphError", "convert_ogb", "load", "save"]
