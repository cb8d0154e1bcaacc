"""The model of a measured run: a preset, a model file, or a build with the row's shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from torchledger.formula import num_parameters
from torchledger.planner.measured_cells import Cells
from torchledger.spec import ModelSpec, load, presets
from torchledger.spec.check import mistakes as spec_mistakes

_SHAPE = ("layers", "hidden", "heads", "vocab")

#: Builds that are tried against a row's parameters where nothing names one.
_BUILDS = ("gpt2", "llama-2-7b")

#: How far, as a share, the parameters of a build may lie from the row's before that is said.
_FAR = 0.02


def model_of(cells: Cells, folder: Path, dropout: float = 0.0) -> tuple[ModelSpec | None, tuple[str, ...]]:
    """The row's model and what was assumed of it; no model where there are mistakes (which are noted).

    Args:
        cells: the row.
        folder: where the paths of model files start.
        dropout: of the row's stack, where the row does not tell.
    """
    name = cells.text("model")
    sizes = {column: cells.whole(column) for column in (*_SHAPE, "kv_heads", "head_size", "ffn", "seq")}
    base = _named(cells.text("like") or name, folder)
    if base is None and cells.has("like"):
        cells.fail("like", f"{cells.text('like')!r} is no preset and no model file; {presets.suggestion(name)}")
        return None, ()
    missing = [column for column in _SHAPE if sizes[column] is None]
    if base is None and missing:
        told = f"{name!r} is no preset" if name else "no model is named"
        cells.fail("model", f"{told} and the shape lacks {', '.join(missing)}; {presets.suggestion(name)}")
        return None, ()
    found, assumed = _inferred(cells, sizes) if base is None else (base, ())
    spec = replace(_dropped(_shaped(found, sizes, cells), cells, dropout), name=name or found.name)
    for place, message in spec_mistakes(spec):
        cells.fail("model", f"{place}: {message}")
    return spec, (*assumed, *_far(spec, cells))


def _named(name: str, folder: Path) -> ModelSpec | None:
    """The preset or model file of that name; a table's `LLAMA3_70B` is the preset `llama-3-70b`."""
    if not name:
        return None
    if presets.find(name) is not None:
        return presets.get(name)
    path = folder / name
    if path.suffix in {".toml", ".json"} and path.is_file():
        return _read(path)
    return None


@lru_cache(maxsize=64)
def _read(path: Path) -> ModelSpec:
    return load(path)


def _shaped(base: ModelSpec, sizes: dict[str, int | None], cells: Cells) -> ModelSpec:
    """`base` with the sizes that the row tells."""
    attention = base.attention
    hidden = sizes["hidden"] or base.hidden_size
    head_size = sizes["head_size"]
    if attention.kind == "standard":
        changed = hidden != base.hidden_size or (sizes["heads"] or attention.num_heads) != attention.num_heads
        attention = replace(
            attention,
            num_heads=sizes["heads"] or attention.num_heads,
            num_key_value_heads=sizes["kv_heads"] or (sizes["heads"] if changed else attention.num_key_value_heads),
            head_size=head_size or (None if changed else attention.head_size),
        )
    width = sizes["ffn"] or (base.mlp.intermediate_size if hidden == base.hidden_size else 4 * hidden)
    spec = replace(
        base,
        attention=attention,
        mlp=replace(base.mlp, intermediate_size=width),
        num_layers=sizes["layers"] or base.num_layers,
        hidden_size=hidden,
        vocab_size=sizes["vocab"] or base.vocab_size,
        max_sequence_length=_longest(base, sizes["seq"]),
    )
    return _mixed(spec, cells)


def _longest(base: ModelSpec, sequence_length: int | None) -> int:
    """Learned positions are as many as the run's tokens; others need no table."""
    if sequence_length is None:
        return base.max_sequence_length
    return sequence_length if base.position.kind == "learned" else max(base.max_sequence_length, sequence_length)


def _mixed(spec: ModelSpec, cells: Cells) -> ModelSpec:
    moe = spec.moe
    experts, chosen, width = (cells.whole(column) for column in ("moe_experts", "moe_topk", "moe_ffn"))
    if moe is None:
        if experts is not None:
            cells.fail("like", "a mixture needs a model file or a preset that says how its experts are built")
        return spec
    moe = replace(
        moe,
        num_experts=experts or moe.num_experts,
        experts_per_token=chosen or moe.experts_per_token,
        intermediate_size=width or moe.intermediate_size,
    )
    return replace(spec, moe=moe)


def _dropped(spec: ModelSpec, cells: Cells, default: float) -> ModelSpec:
    """`spec` with the row's dropout; 0 is none."""
    text = cells.text("dropout")
    dropout = default if not text else 0.0 if text in {"0", "0.0"} else cells.number("dropout") or 0.0
    return replace(spec, dropout=dropout, attention=replace(spec.attention, dropout=dropout))


def _inferred(cells: Cells, sizes: dict[str, int | None]) -> tuple[ModelSpec, tuple[str, ...]]:
    """The build whose parameters are the nearest to the row's; without them, by the width of the MLP."""
    told = cells.whole("params")
    hidden, width = sizes["hidden"] or 0, sizes["ffn"]
    if told is None:
        gated = width is not None and width != 4 * hidden
        build = _BUILDS[1] if gated else _BUILDS[0]
        why = "its MLP is not 4 times as wide as the model" if gated else "its MLP is 4 times as wide as the model"
        return presets.get(build), (f"model: built like {build}, since {why}",)
    tried = [(abs(_size(spec, sizes, cells) - told), what, spec) for what, spec in _builds()]
    _, what, spec = min(tried, key=lambda each: each[0])
    return spec, (f"model: built like {what}, the nearest to {told:,} parameters",)


def _builds() -> Iterator[tuple[str, ModelSpec]]:
    for name in _BUILDS:
        spec = presets.get(name)
        for tied in (True, False):
            yield f"{name} with {'tied' if tied else 'separate'} embeddings", replace(spec, tied_embeddings=tied)


def _size(base: ModelSpec, sizes: dict[str, int | None], cells: Cells) -> int:
    return int(num_parameters(_shaped(base, sizes, Cells(cells.texts))))


def _far(spec: ModelSpec, cells: Cells) -> Iterator[str]:
    told = cells.whole("params")
    if told is None or cells.mistakes:
        return
    ours = int(num_parameters(spec))
    if abs(ours / told - 1) > _FAR:
        yield f"model: {ours:,} parameters by its shape, the row prints {told:,}"
