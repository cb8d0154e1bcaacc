"""Kept bytes, storage by storage: the formula's list, the trace, and what autograd really holds on this machine."""

import itertools

import pytest
import torch
from architectures import BY_NAME, SPECS
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from torchledger.formula import count, memory
from torchledger.formula.layout import contiguous, merged
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, OptimizerSpec, PositionSpec, Recipe
from torchledger.tracer import trace_step
from torchledger.trainer.precision import autocast
from torchledger.trainer.step import build_step, example_batch

RECIPES = [
    Recipe(batch_size=rows, sequence_length=16, precision=precision, attention=attention, recompute=recompute)
    for rows, precision, attention, recompute in itertools.product(
        (1, 2), ("fp32", "bf16"), ("math", "fused"), ("none", "full")
    )
]


class _Alive(TorchDispatchMode):
    """Every storage that an operation makes, by weak reference: what is left afterwards is what somebody holds."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.made.append((StorageWeakRef(storage), storage.nbytes()))
        return result

    def num_bytes(self):
        return sum({ref.cdata: size for ref, size in self.made if not ref.expired()}.values())


def _really_kept(spec, recipe):
    """Bytes alive after a real forward pass, parameters, buffers and the batch apart."""
    step = build_step(spec, recipe)
    ((tokens, targets),) = example_batch(recipe)
    own = [tokens, targets, *step.model.parameters(), *step.model.buffers()]
    with _Alive() as alive, autocast(torch.device("cpu"), recipe.precision):
        loss = step.model(tokens, targets)
    mine = {tensor.untyped_storage()._cdata for tensor in own}
    alive.made = [(ref, size) for ref, size in alive.made if ref.cdata not in mine]
    num_bytes = alive.num_bytes()
    assert loss.isfinite()
    return num_bytes


def _traced(spec, recipe):
    def step():
        run, batch = build_step(spec, recipe, initialized=False), example_batch(recipe)
        return lambda: run(batch, 0)

    return trace_step(step)


@BY_NAME
def test_the_formula_keeps_what_autograd_holds_but_for_the_numbers_it_wraps(spec):
    """A mode sees every storage but those of wrapped Python numbers, which the formula lists as FP64."""
    torch.manual_seed(0)
    for recipe in RECIPES:
        kept = memory(spec, recipe).activations
        numbers = sum(each.total_bytes for each in kept if each.number_format == "fp64")
        assert sum(each.total_bytes for each in kept) - numbers == _really_kept(spec, recipe), recipe


@BY_NAME
@pytest.mark.parametrize(("precision", "attention"), [("fp32", "math"), ("bf16", "fused")])
def test_the_formula_keeps_what_the_trace_keeps_to_the_byte(spec, precision, attention):
    recipe = Recipe(batch_size=2, sequence_length=16, precision=precision, attention=attention)
    trace = _traced(spec, recipe)
    assert count(spec, recipe).total.bytes_kept == trace.kept_bytes
    assert memory(spec, recipe).activation_bytes == trace.kept_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("spec", SPECS[:2] + SPECS[6:7] + SPECS[12:13], ids=lambda spec: spec.name)
def test_under_recompute_too(spec, precision):
    recipe = Recipe(batch_size=2, sequence_length=16, precision=precision, attention="math", recompute="full")
    assert count(spec, recipe).total.bytes_kept == _traced(spec, recipe).kept_bytes


GATED = ModelSpec("gated", 97, 64, 1, 32, AttentionSpec(4, 2), MlpSpec(80))
MIXTURES = ModelSpec("mixtures", 97, 64, 2, 32, AttentionSpec(4, 2), MlpSpec(48), moe=MoeSpec(4, 2, 16))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-pure"])
@pytest.mark.parametrize("targets", [("up",), ("gate",), ("up", "down"), ("gate", "down"), ("gate", "up"), ("value",)])
def test_a_product_keeps_an_operand_only_for_a_gradient_of_the_other(targets, precision):
    """In the first layer a gate or an up without an adapter has no gradient, and its counterpart is not kept for it."""
    recipe = Recipe(batch_size=2, sequence_length=8, precision=precision, lora_rank=2, lora_targets=targets)
    assert count(GATED, recipe).total.bytes_kept == _traced(GATED, recipe).kept_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-pure"])
@pytest.mark.parametrize(("heads", "rows"), [((8, 1), 1), ((8, 1), 2), ((8, 2), 1), ((4, 4), 1)])
def test_heads_that_are_repeated_as_a_view_are_kept_as_many_once_they_are_cast(heads, rows, precision):
    """Dropout takes attention to FP32: one key-value head of one sequence is written for every query head."""
    attention = AttentionSpec(*heads, head_size=16, dropout=0.1)
    spec = ModelSpec("dropped", 40, 64, 1, 32, attention, MlpSpec(64), position=PositionSpec("learned"))
    recipe = Recipe(batch_size=rows, sequence_length=16, precision=precision)
    assert count(spec, recipe).total.bytes_kept == _traced(spec, recipe).kept_bytes


@pytest.mark.parametrize("trainable", [(), ("head",), ("layers.1",), ("embedding",)])
@pytest.mark.parametrize("weight", [0.0, 0.01])
def test_the_weight_of_a_load_balancing_loss_is_kept_where_a_router_has_a_gradient(trainable, weight):
    """A product with a number that nothing flows back through keeps no number."""
    recipe = Recipe(batch_size=2, sequence_length=8, load_balance=weight, trainable=trainable)
    assert count(MIXTURES, recipe).total.bytes_kept == _traced(MIXTURES, recipe).kept_bytes


LARGE_VOCABULARY = ModelSpec("small", 8192, 256, 3, 64, AttentionSpec(4, 2), MlpSpec(172), tied_embeddings=True)


@pytest.mark.parametrize(
    ("recipe", "moment"),
    [
        (Recipe(batch_size=8, sequence_length=64, precision="bf16"), "backward of the loss"),
        (Recipe(batch_size=8, sequence_length=64, recompute="full"), "backward of the loss"),
        (Recipe(batch_size=8, sequence_length=64, attention="math", accumulation_steps=4), "backward of the loss"),
        (Recipe(batch_size=1, sequence_length=8), "backward of the embedding"),
        (Recipe(batch_size=2, sequence_length=8, accumulation_steps=2), "backward of the embedding"),
        (
            Recipe(batch_size=1, sequence_length=8, optimizer=OptimizerSpec(implementation="foreach")),
            "backward of the embedding",
        ),
    ],
)
def test_the_peak_is_the_traces_to_the_byte_where_logits_or_the_embedding_make_it(recipe, moment):
    prediction = memory(LARGE_VOCABULARY, recipe)
    assert prediction.peak.name == moment
    assert prediction.peak_bytes == _traced(LARGE_VOCABULARY, recipe).peak().peak_bytes


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_reshape_copies_where_torch_says_it_does(order):
    """Sizes of 1 among them; a repeated dimension as `repeat` makes it, with stride 0."""
    for shape in itertools.product((1, 2), (1, 3), (2,), (1, 4)):
        tensor = torch.empty(shape).permute(order)
        repeated = tensor.unsqueeze(2).expand(*tensor.shape[:2], 3, *tensor.shape[2:])
        for case, groups in itertools.product((tensor, repeated), ((1, 2), (2, 1), (3,), (2, 2), (1, 1, 2), (3, 1, 1))):
            if sum(groups) != case.dim():
                continue
            sizes, strides = merged(tuple(case.shape), case.stride(), groups)
            is_copy = case.reshape(sizes).data_ptr() != case.data_ptr()
            assert (strides is None) == is_copy, (case.shape, case.stride(), groups)


def test_a_new_tensor_lies_as_torch_lays_it():
    for shape in ((2, 3, 4), (1, 5), (7,), (2, 1, 3)):
        assert contiguous(shape) == torch.empty(shape).stride()
