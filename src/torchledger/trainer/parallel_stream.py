"""How tokens come to the ranks that split a layer's matrices, and how their partial results are added up.

Between the layers' matrices the stream is whole on every rank, or each has a share of the tokens (sequence
parallelism, Korthikanti et al., arXiv:2205.05198, section 4.2.2); f and f̄, g and ḡ of the papers are these two.
"""

from jaxtyping import Float
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.placement_types import Placement

__all__ = ["gathered", "over_ranks", "summed"]


def gathered(
    x: Float[Tensor, "batch share hidden"], mesh: DeviceMesh, stream: Placement
) -> Float[Tensor, "batch length hidden"]:
    """All tokens on every rank; of the gradient each rank finds a part, and the parts are added up on the way back.

    Args:
        x: what this rank has of the stream.
        mesh: of one dimension.
        stream: how the ranks share the tokens.
    """
    whole = DTensor.from_local(x, mesh, [stream], run_check=False).redistribute(placements=[Replicate()])
    local: Tensor = whole.to_local(grad_placements=[Partial()])
    return local


def summed(
    y: Float[Tensor, "batch length hidden"], mesh: DeviceMesh, stream: Placement
) -> Float[Tensor, "batch share hidden"]:
    """The sum of all ranks' results, of which each keeps its share of the stream; all get all of the gradient.

    Args:
        y: this rank's part of each token's result.
        mesh: of one dimension.
        stream: how the ranks share the tokens.
    """
    whole = DTensor.from_local(y, mesh, [Partial()], run_check=False)
    local: Tensor = whole.redistribute(placements=[stream]).to_local()
    return local


def over_ranks(part: Float[Tensor, "*sizes"], mesh: DeviceMesh) -> Float[Tensor, "*sizes"]:
    """The sum of all ranks' numbers, on each of them, every one of which goes on to compute a part of the loss with it.

    So the gradient is a sum over the ranks too.
    """
    whole = DTensor.from_local(part, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()])
    local: Tensor = whole.to_local(grad_placements=[Partial()])
    return local
