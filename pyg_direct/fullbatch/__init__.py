"""Full-batch training over several GPUs: the techniques of MG-GCN (arXiv 2110.08688)."""

from pyg_direct.fullbatch.model import FullBatchGNN
from pyg_direct.fullbatch.partition import Partition, balance_of, count_tiles, partition_nodes
from pyg_direct.fullbatch.processes import Ranks, joined_ranks
from pyg_direct.fullbatch.source import GraphSource
from pyg_direct.fullbatch.spawning import spawn_ranks
from pyg_direct.fullbatch.training import FullBatchTrainer

__all__ = [
    "FullBatchGNN",
    "FullBatchTrainer",
    "GraphSource",
    "Partition",
    "Ranks",
    "balance_of",
    "count_tiles",
    "joined_ranks",
    "partition_nodes",
    "spawn_ranks",
]
