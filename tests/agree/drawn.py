"""Models and recipes drawn over every field that changes what a step holds."""

from dataclasses import replace

from hypothesis import strategies as st
from test_drawn_models import specs

from torchledger.spec import OptimizerSpec, Recipe

TRAINED = ((), (), (), ("head",), ("layers.1",), ("embedding",), ("layers.0", "head"), ("layers.1-1", "embedding"))
PRECISIONS = ("fp32", "bf16", "bf16-pure", "bf16-master", "bf16-moments", "fp8")
KINDS = ("adamw", "sgd", "lion", "muon", "adafactor", "adamw-8bit")


@st.composite
def questions(draw):
    """A model and how it is trained."""
    spec = draw(specs())
    if spec.moe is not None:
        spec = replace(spec, moe=replace(spec.moe, capacity_factor=draw(st.sampled_from([0, 0, 0.5, 1.5]))))
    spec = replace(
        spec,
        dropout=draw(st.sampled_from([0.0, 0.0, 0.1])),
        num_prediction_layers=draw(st.sampled_from([0, 0, 1, 2])),
        num_layers=draw(st.sampled_from([2, 3, 8])),
    )
    return spec, draw(recipes(has_experts=spec.moe is not None, shortest=1 + spec.num_prediction_layers))


@st.composite
def recipes(draw, *, has_experts, shortest):
    """How it is trained, on a few tokens; so many at least that each prediction layer has a target."""
    steps, trained = draw(st.integers(1, 3)), draw(st.sampled_from(TRAINED))
    recompute = draw(st.sampled_from(["none", "none", "full", "selective"]))
    kind = draw(st.sampled_from(KINDS))
    return Recipe(
        batch_size=steps * draw(st.integers(1, 3)),
        sequence_length=draw(st.integers(shortest, 9)),
        accumulation_steps=steps,
        precision=draw(st.sampled_from(PRECISIONS)),
        attention=draw(st.sampled_from(["math", "fused"])),
        recompute=recompute,
        recompute_every=draw(st.integers(1, 2)) if recompute == "full" else 1,
        optimizer=OptimizerSpec(
            kind,
            draw(st.sampled_from(["fused", "foreach", "loop"])),
            momentum=draw(st.sampled_from([0.0, 0.9])) if kind == "sgd" else 0.0,
            gradient_clip=draw(st.sampled_from([0.0, 1.0])),
            weight_decay=draw(st.sampled_from([0.0, 0.1])),
        ),
        trainable=trained,
        lora_rank=0 if trained else draw(st.sampled_from([0, 0, 2])),
        loss_chunk=draw(st.sampled_from([0, 0, 3, 100])),
        document_mask=draw(st.booleans()),
        load_balance=draw(st.sampled_from([0.0, 0.01])) if has_experts else 0.0,
    )
