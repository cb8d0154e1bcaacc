import subprocess
import sys
from pathlib import Path

import pytest

import torchledger
from torchledger import ops

ROOMS = {path.name for path in Path(torchledger.__file__).parent.iterdir() if (path / "__init__.py").is_file()}


def test_the_public_names_are_these():
    """The public surface is written here by hand: a name comes or goes only on purpose."""
    assert sorted(torchledger.__all__, key=str.lower) == sorted(
        [
            *("Convention", "Difference", "HARDWARE_FLOPS", "Ledger", "Line", "MODEL_FLOPS", "ModelSpec", "Rates"),
            *("Change", "Recipe", "Recorder", "RunConfig", "RunRecord", "Strategy", "Trace", "Work"),
            *("count", "get_chip", "hfu", "load_spec", "mfu", "num_parameters", "parameters", "parse_cluster"),
            *("plan", "polynomial", "prepare", "report_page", "solve", "step_time", "trace", "trace_step", "train"),
            *("max_batch", "max_sequence", "what_if", "price_of", "ranks", "reserve", "AllocatorSettings"),
            *("Subject", "audit", "explain"),
        ],
        key=str.lower,
    )


@pytest.mark.parametrize("name", torchledger.__all__)
def test_every_public_name_is_documented_and_there(name):
    """Each name can be used, and what can carry a docstring has one."""
    value = getattr(torchledger, name)
    if callable(value):
        assert value.__doc__, name


def test_no_public_name_is_a_rooms():
    """`torchledger.trace` is a function and `torchledger.tracer` its room: no name means both."""
    assert not ROOMS & set(torchledger.__all__)


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name fails as on any module."""
    with pytest.raises(AttributeError, match="no attribute 'cuont'"):
        torchledger.cuont  # noqa: B018 - the access is the test


def test_importing_loads_nothing_heavy():
    """Neither torch nor numpy nor rich nor click, until a name needs it; counting needs none of them."""
    code = (
        "import sys, torchledger; heavy = {'torch', 'numpy', 'rich', 'click', 'sympy', 'cattrs'};"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys();"
        "str(torchledger.count(torchledger.load_spec('gpt2')));"
        "assert not {'torch', 'numpy', 'rich', 'sympy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_custom_operation_is_priced_from_the_front_door():
    """One line gives an operation of `torch.library` its FLOPs: 2·4·8·16 forward, and an mm backward as many."""
    import torch
    from torch import nn

    from torchledger.tracer.pricing import prices

    @torch.library.custom_op("torchledger_front::product", mutates_args=())
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    product.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
    product.register_autograd(lambda _, gradient: (gradient @ torch.ones(16, 8), None))

    class Model(nn.Module):
        def forward(self, x):
            return product(x, torch.ones(8, 16))

    def seen():
        return torchledger.trace(Model(), torch.ones(4, 8, requires_grad=True), loss=lambda y, _: y.sum()).ledger

    assert not seen().is_complete
    torchledger.price_of("torchledger_front::product")(lambda seen: ops.matmul(1, 4, 16, seen.tensor("a").shape[1]))
    try:
        assert seen().is_complete
        assert seen().flops == 2 * (2 * 4 * 8 * 16)
    finally:
        del prices["torchledger_front::product"]


def test_the_caching_allocator_stands_at_the_front_door():
    """A traced step's timeline is replayed on the model of CUDA's caching allocator, its settings read as PyTorch's."""
    import torch
    from torch import nn

    seen = torchledger.trace(nn.Linear(8, 8), torch.ones(4, 8), loss=lambda y, _: y.sum())
    settings = torchledger.AllocatorSettings.parse("expandable_segments:True")
    assert torchledger.reserve(seen.timeline, settings).peak.reserved_bytes == 2 << 20


def test_a_ledger_prints_as_a_table():
    """Whoever comes in by the front door sees tables."""
    assert "layers.*" in str(torchledger.count(torchledger.load_spec("gpt2")))
