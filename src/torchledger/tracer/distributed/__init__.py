"""One rank of a distributed run, from one process: its process groups, collectives, buffers and streams.

The user's own code runs, under torch.distributed's fake process group; nothing is sent.
"""

from torchledger.tracer.distributed.collectives import Group
from torchledger.tracer.distributed.ranks import of_this_rank, ranks

__all__ = ["Group", "of_this_rank", "ranks"]
