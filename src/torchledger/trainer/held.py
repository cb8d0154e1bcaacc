"""`held`: a parameter as a rank computes with it: its own share where ranks split a tensor, else the whole."""

from typing import overload

from torch import Tensor

__all__ = ["held"]


@overload
def held(parameter: Tensor, *, sums: bool = ...) -> Tensor: ...
@overload
def held(parameter: Tensor | None, *, sums: bool = ...) -> Tensor | None: ...
def held(parameter: Tensor | None, *, sums: bool = False) -> Tensor | None:
    """A plain tensor: the parameter itself where it is one; of a DTensor what this rank has of it.

    Args:
        parameter: nothing gives nothing.
        sums: of a parameter that every rank holds whole: whether this rank's gradient is only a share of a sum over the
            ranks, which whoever reads the gradient adds up; otherwise every rank has found the whole of it.
    """
    if parameter is None or not hasattr(parameter, "placements"):  # no DTensor, whose import alone takes a second
        return parameter
    from torch.distributed.tensor import DTensor, Partial

    assert isinstance(parameter, DTensor)
    gradient = [Partial() if sums and each.is_replicate() else each for each in parameter.placements]
    local: Tensor = parameter.to_local(grad_placements=gradient)
    return local
