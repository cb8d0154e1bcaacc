"""The facts: chips, links and clusters from data files, each value with its source and date.

>>> from torchledger import machine
>>> machine.get("h100").peak("bf16")
989400000000000.0
>>> machine.parse_cluster("8xA100").chip.name
'A100 SXM 80GB'
>>> machine.match("Some GPU that nobody knows") is None
True
"""

from torchledger.machine import catalog
from torchledger.machine.catalog import Catalog, list_chips, load
from torchledger.machine.chip import NUMBER_FORMATS, Chip, Peak, Quoted, Sparsity
from torchledger.machine.cluster import Cluster, parse_cluster
from torchledger.machine.cluster_file import KnownCluster, list_clusters, named_cluster, read_cluster
from torchledger.machine.description import Fact, describe
from torchledger.machine.errors import BadCluster, BadRow, MachineError, NoPeak, UnknownChip, UnknownFact
from torchledger.machine.link import Link
from torchledger.machine.matching import get, match
from torchledger.machine.processor import generic_cpu

__all__ = [
    "NUMBER_FORMATS",
    "BadCluster",
    "BadRow",
    "Catalog",
    "Chip",
    "Cluster",
    "Fact",
    "KnownCluster",
    "Link",
    "MachineError",
    "NoPeak",
    "Peak",
    "Quoted",
    "Sparsity",
    "UnknownChip",
    "UnknownFact",
    "catalog",
    "describe",
    "generic_cpu",
    "get",
    "list_chips",
    "list_clusters",
    "load",
    "match",
    "named_cluster",
    "parse_cluster",
    "read_cluster",
]
