"""Recurrent layers, counted gate by gate."""

import pytest

from torchledger import ops
from torchledger.ops.recurrent import gates


def _products(pieces):
    return {piece.op: piece.work.flops_full for piece in pieces if piece.kind == "matmul"}


@pytest.mark.parametrize("cell", gates)
def test_a_layer_is_two_products_a_gate_and_step(cell):
    """Each gate of each unit takes the step's input and the last output."""
    pieces = ops.recurrent_layer(5, 2, 3, 4, cell=cell)
    assert _products(pieces) == {
        "recurrent_input": 2 * 5 * 2 * gates[cell] * 4 * 3,
        "recurrent_hidden": 2 * 5 * 2 * gates[cell] * 4 * 4,
    }


def test_a_projection_is_one_product_more_and_makes_the_output_narrower():
    pieces = ops.recurrent_layer(5, 2, 3, 4, projection=2)
    assert _products(pieces) == {
        "recurrent_input": 2 * 10 * 16 * 3,
        "recurrent_hidden": 2 * 10 * 16 * 2,
        "recurrent_projection": 2 * 10 * 4 * 2,
    }


def test_gradients_that_nobody_needs_are_executed_work_at_most():
    """A kernel that makes them all runs twice the forward products; the model needs what it needs."""
    options = {"input_gradient": False, "state_gradient": False}
    lean = ops.recurrent_layer_backward(5, 2, 3, 4, **options)
    whole = ops.recurrent_layer_backward(5, 2, 3, 4, runs_all=True, **options)
    forward = sum(_products(ops.recurrent_layer(5, 2, 3, 4)).values())
    needed = forward + 2 * 4 * 2 * 16 * 4  # the weights', and the states' of four of five steps
    assert sum(_products(lean).values()) == sum(_products(whole).values()) == needed
    assert sum(piece.work.flops_executed for piece in whole if piece.kind == "matmul") == 2 * forward
    assert sum(piece.work.flops_executed for piece in lean if piece.kind == "matmul") == needed


def test_a_frozen_layer_has_no_weight_gradient():
    pieces = ops.recurrent_layer_backward(5, 2, 3, 4, weight_gradient=False)
    assert {piece.gradient_of for piece in pieces} == {"input"}


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_fused_cell_is_what_a_layer_does_beside_its_products(cell):
    """One step of the layer, less the products."""
    layer = next(p for p in ops.recurrent_layer(1, 2, 3, 4, cell=cell) if p.op == "recurrent_cell")
    assert ops.recurrent_cell(2, 4, cell=cell)[0].work.flops_full == layer.work.flops_full
    assert ops.recurrent_cell_backward(2, 4, cell=cell)[0].gradient_of == "input"
