"""From a graph's source to everything one rank needs for training.

Shape legend: ``n`` vertices, ``m`` rows of this rank, ``P`` ranks.
"""

import torch
from torch import Tensor

from pyg_direct.fullbatch.adjacency import Adjacency, build_adjacency
from pyg_direct.fullbatch.engine import EngineChoice, choose_engine, padded_width, value_dtype
from pyg_direct.fullbatch.input_rows import ResidentRows, StreamedRows
from pyg_direct.fullbatch.local_graph import LocalGraph, Placement
from pyg_direct.fullbatch.memory import (
    GIB,
    allocate_buffers,
    plan_buffers,
    plan_temporaries,
)
from pyg_direct.fullbatch.model import FullBatchGNN
from pyg_direct.fullbatch.partition import Balance, Order, Partition, balance_of, partition_nodes
from pyg_direct.fullbatch.processes import Ranks
from pyg_direct.fullbatch.propagation import Propagation
from pyg_direct.fullbatch.source import GraphSource
from pyg_direct.fullbatch.staged_product import StagedProduct

SPLITS = ("train", "val", "test")
# Of one parameter: its value, its gradient, the one of the step before, and Adam's two moments.
COPIES_PER_PARAMETER = 5


def prepare(
    model: FullBatchGNN, source: GraphSource, ranks: Ranks, placement: Placement
) -> LocalGraph:
    """Read this rank's part, normalize it, allocate the buffers, and compute A X.

    Parameters
    ----------
    model : FullBatchGNN
    source : GraphSource
        Not kept.
    ranks : Ranks
    placement : Placement

    Raises
    ------
    ValueError
        If the features are not as wide as the model expects.
    RuntimeError
        If the device has less free memory than predicted.
    """
    architecture = model.architecture
    if source.num_features != architecture.widths[0]:
        raise ValueError(
            f"x has {source.num_features} columns, expected in_channels = {architecture.widths[0]}"
        )
    choice = _choose_engine(source, ranks, placement)
    partition = _partition(source, ranks, placement)
    node = partition.nodes(ranks.rank)
    values = value_dtype(choice.engine, placement.dtype, ranks.device)
    adjacency = _adjacency(model, source, partition, ranks, values)
    label, masks = _targets(source, node, ranks.device)
    parts = _predict(model, adjacency, partition.sizes, ranks, placement, choice)
    parts["labels and masks"] = sum(tensor.nbytes for tensor in (label, *masks.values()))
    _check_free(parts, ranks.device)
    inputs = _load_features(model, source, node, ranks.device, placement)
    propagation = _propagation(
        model, adjacency, inputs, ranks, partition.sizes, node, placement.dtype, choice
    )
    propagation.aggregate_features()
    return LocalGraph(
        node=node,
        label=label,
        masks=masks,
        num_labelled=_count(masks, ranks),
        propagation=propagation,
        parts=parts,
        balance=_balance(adjacency, ranks),
    )


def _choose_engine(source: GraphSource, ranks: Ranks, placement: Placement) -> EngineChoice:
    choice = choose_engine(
        placement.engine,
        placement.column_block,
        num_nodes=source.num_nodes,
        dtype=placement.dtype,
        device=ranks.device,
    )
    # Slices of unlike widths would be broadcast into each other.
    ranks.check_equal("engine and its column block", str(choice))
    return choice


def _propagation(
    model: FullBatchGNN,
    adjacency: Adjacency,
    inputs: ResidentRows | StreamedRows,
    ranks: Ranks,
    sizes: tuple[int, ...],
    node: Tensor,
    dtype: torch.dtype,
    choice: EngineChoice,
) -> Propagation:
    architecture = model.architecture
    slice_width = architecture.slice_width(choice.column_block)
    buffers = allocate_buffers(
        architecture,
        sizes,
        ranks.rank,
        slice_width=padded_width(slice_width, dtype.itemsize),
        dtype=dtype,
        device=ranks.device,
    )
    product = StagedProduct(
        ranks,
        sizes,
        buffers=buffers.receive,
        engine=choice.engine,
        column_block=choice.column_block,
    )
    return Propagation(
        architecture,
        adjacency=adjacency,
        product=product,
        slice_width=slice_width,
        inputs=inputs,
        buffers=buffers,
        node=node.to(ranks.device) if architecture.dropout else None,
    )


def _partition(source: GraphSource, ranks: Ranks, placement: Placement) -> Partition:
    # One rank has nothing to balance, and ascending vertices are read without a gather.
    order: Order = "natural" if ranks.num_ranks == 1 else placement.order
    return partition_nodes(source.num_nodes, ranks.num_ranks, order=order, seed=placement.seed)


def _adjacency(
    model: FullBatchGNN,
    source: GraphSource,
    partition: Partition,
    ranks: Ranks,
    dtype: torch.dtype,
) -> Adjacency:
    return build_adjacency(
        source.edges(partition.nodes(ranks.rank), ranks.device),
        partition,
        ranks,
        normalization=model.normalization,
        self_loops=model.self_loops,
        dtype=dtype,
    )


def _targets(
    source: GraphSource, node: Tensor, device: torch.device
) -> tuple[Tensor, dict[str, Tensor]]:
    """Read labels and masks; without a ``train_mask`` every vertex is trained on."""
    label = source.rows("y", node).view(-1).to(device=device, dtype=torch.int32)
    masks = {
        split: source.rows(f"{split}_mask", node).to(device=device, dtype=torch.bool)
        for split in SPLITS
        if source.has(f"{split}_mask")
    }
    masks.setdefault("train", torch.ones_like(label, dtype=torch.bool))
    return label, masks


def _count(masks: dict[str, Tensor], ranks: Ranks) -> dict[str, int]:
    counts = torch.stack([mask.sum() for mask in masks.values()])
    ranks.sum_in_place(counts)
    return dict(zip(masks, counts.tolist(), strict=True))


def _predict(
    model: FullBatchGNN,
    adjacency: Adjacency,
    sizes: tuple[int, ...],
    ranks: Ranks,
    placement: Placement,
    choice: EngineChoice,
) -> dict[str, int]:
    architecture, rows = model.architecture, sizes[ranks.rank]
    size = placement.dtype.itemsize
    table = rows * architecture.table_width * size
    if placement.features == "host":
        table = StreamedRows.staging_bytes_of(rows, architecture.table_width * size, ranks.device)
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return {
        **plan_buffers(
            architecture,
            sizes,
            ranks.rank,
            slice_width=padded_width(architecture.slice_width(choice.column_block), size),
            element_bytes=size,
        ),
        "input": table,
        "adjacency": adjacency.num_bytes,
        "vertex numbers": rows * 8 if architecture.dropout else 0,
        "parameters": COPIES_PER_PARAMETER * parameters,
        **plan_temporaries(architecture, rows, size),
    }


def _check_free(parts: dict[str, int], device: torch.device) -> None:
    if device.type != "cuda":
        return
    needed = sum(parts.values()) - parts["adjacency"]
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise RuntimeError(
            f"training needs {needed / GIB:.2f} GiB more on {device}, {free / GIB:.2f} GiB are "
            f"free: use features='host', dtype=bfloat16, or more ranks"
        )


def _load_features(
    model: FullBatchGNN,
    source: GraphSource,
    node: Tensor,
    device: torch.device,
    placement: Placement,
) -> ResidentRows | StreamedRows:
    architecture = model.architecture
    table = ResidentRows if placement.features == "device" else StreamedRows
    inputs = table(node.numel(), architecture.table_width, dtype=placement.dtype, device=device)
    first = architecture.table_width - architecture.widths[0]
    for start, rows in source.feature_pieces(node):
        inputs.write(start, first, rows)
    return inputs


def _balance(adjacency: Adjacency, ranks: Ranks) -> Balance:
    counts = torch.zeros(ranks.num_ranks, ranks.num_ranks, dtype=torch.int64)
    counts[ranks.rank] = torch.tensor(adjacency.num_nonzeros)
    counts = counts.to(ranks.device)
    ranks.sum_in_place(counts)
    return balance_of(counts.cpu())
