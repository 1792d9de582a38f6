"""Open a graph that was saved: files are mapped, not read, so that size does not matter."""

from pathlib import Path

import torch
from torch import Tensor

from pyg_direct.files.arrays import StoredArray, checksum_of, map_array
from pyg_direct.files.manifest import StoredEdges, StoredGraphError, read_manifest
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, Topology

# Less than this is read in no time.
ALWAYS_VERIFIED_BYTES = 1 << 26


def load(
    path: str | Path,
    device: torch.device | str | None = None,
    *,
    verify: bool = False,
    page_cache: bool = False,
) -> tuple[DirectFeatureStore, DirectGraphStore]:
    """Open a graph.

    Parameters
    ----------
    path : str or Path
        A folder that ``save`` wrote.
    device : torch.device or str, optional
        Where rows appear. None: the current GPU if there is one, else the CPU. A GPU registers the
        files, which brings them into memory.
    verify : bool
        Read everything and compare checksums. Arrays of up to 64 MiB are verified in any case;
        shapes and sizes of all.
    page_cache : bool
        Leave features unregistered, which lets them be larger than memory: the CPU gathers their
        rows through the page cache. Samplers on a GPU still map the edges.

    Returns
    -------
    feature_store, graph_store
        On mapped files, which are for reading alone: update a tensor as a whole, not by rows.

    Raises
    ------
    FileNotFoundError
        If there is no saved graph.
    StoredGraphError
        If it is damaged, cut short, foreign or of a later version.
    """
    folder = Path(path)
    manifest = read_manifest(folder)

    def open_array(stored: StoredArray) -> Tensor:
        try:
            tensor = map_array(folder, stored)
        except ValueError as error:
            raise StoredGraphError(f"{error}; save the graph again") from error
        is_verified = verify or tensor.nbytes <= ALWAYS_VERIFIED_BYTES
        if is_verified and checksum_of(tensor) != stored.checksum:
            raise StoredGraphError(
                f"{folder / stored.file} is damaged: its checksum differs; save the graph again"
            )
        return tensor

    feature_store, graph_store = (
        DirectFeatureStore(device, page_cache=page_cache),
        DirectGraphStore(),
    )
    for group, name, stored in manifest.tensors:
        feature_store.put_tensor(open_array(stored), group_name=group, attr_name=name, index=None)
    for edges in manifest.edges:
        topology = Topology(
            colptr=open_array(edges.colptr),
            row=open_array(edges.row),
            perm=None if edges.perm is None else open_array(edges.perm),
            size=edges.size,
            layout=edges.layout,
        )
        _check_topology(folder, edges, topology)
        graph_store.put_topology(topology, edges.edge_type)
    for node_type, num_nodes in manifest.num_nodes:
        graph_store.put_num_nodes(num_nodes, node_type)
    return feature_store, graph_store


def _check_topology(folder: Path, edges: StoredEdges, topology: Topology) -> None:
    """Check what costs nothing and keeps kernels within their arrays."""
    pointers, num_edges = topology.colptr, topology.num_edges
    is_right = (
        pointers.shape == (topology.size[1] + 1,)
        and pointers.dtype == torch.int64
        and int(pointers[0]) == 0
        and int(pointers[-1]) == num_edges
        and (topology.perm is None or topology.perm.shape == (num_edges,))
    )
    if not is_right:
        raise StoredGraphError(
            f"the edges of type {edges.edge_type!r} in {folder} do not fit their pointers; save "
            "the graph again"
        )
