"""Which implementation torch.optim takes on CUDA: one operation for all parameters (foreach) unless told otherwise.

`_default_to_fused_or_foreach` (torch/optim/optimizer.py) asks whether every parameter stands on a device of a list, and
`capturable=True` asserts it. The fake parameters stand on the CPU, so the CPU is put on these lists. Step counters are
made on the host by name (`device="cpu"`), or on the parameter's device where an optimizer is fused or capturable.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from torch.optim import optimizer as optimizer_module
from torch.utils import _foreach_utils as foreach_utils

from torchledger.tracer.targets.cuda.replacing import replaced

_LISTS = {
    "_get_foreach_kernels_supported_devices": foreach_utils._get_foreach_kernels_supported_devices,  # noqa: SLF001  # torch's lists of devices have no public door
    "_get_capturable_supported_devices": optimizer_module._get_capturable_supported_devices,  # noqa: SLF001  # as above
}


@contextlib.contextmanager
def optimizers_of_cuda() -> Iterator[None]:
    """While this is on, optimizers and `clip_grad_norm_` take the paths that they take for parameters on CUDA."""

    def with_cpu(name: str) -> object:
        def devices(*args: object, **kwargs: object) -> list[str]:
            listed = _LISTS[name]
            return [*listed(*args, **kwargs), "cpu"]

        return devices

    with contextlib.ExitStack() as stack:
        for module in [module for name, module in sys.modules.items() if name.startswith("torch.")]:
            names = [name for name, listed in _LISTS.items() if vars(module).get(name) is listed]
            if names:
                stack.enter_context(replaced(module, {name: with_cpu(name) for name in names}))
        yield
