"""flex_attention on CUDA has a backward pass, which torch refuses on the CPU that stands in for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_MODULE = "torch.nn.attention.flex_attention"
_CHECK = "_validate_device"


@contextlib.contextmanager
def flex_attention_of_cuda() -> Iterator[None]:
    """While this is on, flex_attention differentiates on CPU tensors; nothing is loaded that was not."""
    module: Any = sys.modules.get(_MODULE)
    check = getattr(module, _CHECK, None)
    if check is None:
        yield
        return
    setattr(module, _CHECK, lambda *_tensors: None)
    try:
        yield
    finally:
        setattr(module, _CHECK, check)
