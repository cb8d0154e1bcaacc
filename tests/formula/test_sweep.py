"""What is alive beside what is kept, on tapes small enough to follow by hand."""

from torchledger import ops
from torchledger.formula.sweep import backward_temporary_bytes, forward_temporary_bytes
from torchledger.formula.tape import Tape

SIZE = 4 * 100


def _op(tape, name, *reads, keeps=(), passes=0, size=100):
    y = tape.make(name, (size,), "fp32")
    pieces = ops.pointwise("scale", size)
    return tape.op("", name, pieces, y, reads=reads, backward=pieces, keeps=keeps, passes=passes)


def _chain(*, keeps):
    """X -> a -> b -> c; the middle one keeps its input or nothing."""
    tape = Tape("fp32")
    x = tape.make("x", (100,), "fp32")
    a = _op(tape, "a", x)
    b = _op(tape, "b", a, keeps=(a,) if keeps else ())
    _op(tape, "c", b)
    return tape


def test_a_tensor_lives_until_its_last_reader():
    """Two of a chain are alive at once, beside one that is kept."""
    assert forward_temporary_bytes(_chain(keeps=False)) == 2 * SIZE
    assert forward_temporary_bytes(_chain(keeps=True)) == 2 * SIZE  # b and c, beside a


def test_a_gradient_lives_from_its_maker_to_its_reader():
    """The gradient that comes in and the next one."""
    assert backward_temporary_bytes(_chain(keeps=False)) == 2 * SIZE


def test_what_is_kept_goes_with_the_operation_that_needs_it():
    """Backward of c and b hold two gradients beside a; then a is gone."""
    tape = Tape("fp32")
    x = tape.make("x", (100,), "fp32")
    a = _op(tape, "a", x, keeps=(x,))
    _op(tape, "b", a, keeps=(a,))
    assert backward_temporary_bytes(tape) == 2 * SIZE  # at b, beside x and a; at a one more, with a gone


def test_a_sum_hands_its_gradient_on():
    """A residual addition makes no gradient of its own, and the branch's is added into it."""
    tape = Tape("fp32")
    x = tape.make("x", (100,), "fp32")
    branch = _op(tape, "branch", x)
    _op(tape, "sum", x, branch, passes=2)
    assert backward_temporary_bytes(tape) == 2 * SIZE


def test_a_checkpoint_makes_its_part_again_first():
    """While it runs again: the incoming gradient, and what its forward pass holds beside what is made again."""
    tape = Tape("fp32")
    x = tape.make("x", (100,), "fp32")
    with tape.checkpoint((x,)):
        a = _op(tape, "a", x, size=300)
        b = _op(tape, "b", a, size=300)
        _op(tape, "c", b, keeps=(b,))
    assert sum(each.total_bytes for each in tape.activations()) == SIZE
    assert sum(each.total_bytes for each in tape.activations(recomputed=True)) == 3 * SIZE
    # running again: a beside b, which is made again, and the gradient of c; then gradients of c and b, of b and a
    assert backward_temporary_bytes(tape) == max(SIZE + 3 * SIZE, SIZE + 3 * SIZE, 2 * 3 * SIZE - 3 * SIZE)


def test_nothing_runs_backward_where_nothing_is_trained():
    tape = Tape("fp32")
    _op(tape, "a", tape.make("x", (100,), "fp32", requires_grad=False))
    assert backward_temporary_bytes(tape) == 0
    assert [line.phase for line in tape.lines()] == ["forward"]
