"""The tape: storages are kept once, by whoever asks first, and only what is saved is run again."""

from torchledger import ops
from torchledger.formula.tape import Tape


def _add(tape, path, x, name):
    y = tape.make(name, x.shape, x.number_format)
    tape.run(path, ops.pointwise("add", x.num_elements), "fp32", y)
    return y


def test_a_storage_is_kept_once_and_counted_on_the_line_that_made_it():
    tape = Tape("fp32")
    x = tape.given("x", (3, 4), "fp32")
    y = _add(tape, "a", x, "y")
    tape.save("first", y)
    tape.save("second", y.permuted(1, 0))
    (kept,) = tape.activations()
    assert (kept.name, kept.kept_by, kept.total_bytes) == ("y", "first", 4 * 3 * 4)
    assert [line.work.bytes_kept for line in tape.lines()] == [4 * 3 * 4]


def test_a_slice_keeps_the_whole_storage():
    tape = Tape("fp32")
    y = _add(tape, "a", tape.given("x", (3, 4), "fp32"), "y")
    tape.save("norm", y.sliced(1))
    assert tape.activations()[0].total_bytes == 4 * 3 * 4


def test_parameters_buffers_and_the_batch_are_never_activations():
    tape = Tape("fp32")
    tape.save("matmul", tape.given("weight", (3, 4), "fp32", requires_grad=True))
    assert tape.activations() == ()


def test_paths_and_times_multiply_inside_modules():
    tape = Tape("fp32")
    with tape.inside("layers.*", 5), tape.inside("mlp"), tape.inside("experts.*", 3):
        y = _add(tape, "up", tape.given("x", (2,), "fp32"), "y")
        tape.save("gelu", y)
    (line,) = tape.lines()
    assert (line.module, line.times, line.total.bytes_kept) == ("layers.*.mlp.experts.*.up", 5 * 3, 5 * 3 * 2 * 4)
    assert tape.activations()[0].name == "layers.*.mlp.experts.*.y"


def test_what_a_layer_receives_is_counted_where_it_is_first_kept():
    tape = Tape("fp32")
    h = _add(tape, "embedding", tape.given("x", (2,), "fp32"), "y")
    with tape.inside("layers.*", 7):
        x = tape.receive("input", h)
        y = _add(tape, "one", x, "y")
        tape.save("mul", x)
        _add(tape, "two", y, "z")
    kept = {line.module: line.total.bytes_kept for line in tape.lines()}
    assert kept == {"embedding": 0, "layers.*.one": 0, "layers.*.two": 7 * 2 * 4}


def test_a_checkpoint_keeps_its_input_and_runs_again_up_to_the_last_saved_tensor():
    tape = Tape("fp32")
    x = _add(tape, "before", tape.given("x", (2,), "fp32"), "x")
    with tape.checkpoint((x,)):
        y = _add(tape, "one", x, "y")
        tape.save("gelu", y)
        z = _add(tape, "two", y, "z")
        tape.save("matmul", z)
        _add(tape, "three", z, "out")
    assert [(kept.name, kept.kept_by) for kept in tape.activations()] == [("x", "checkpoint")]
    assert [kept.name for kept in tape.activations(recomputed=True)] == ["y", "z"]
    assert [line.module for line in tape.lines() if line.phase == "recompute"] == ["one", "two"]


def test_a_saved_output_means_that_its_operation_runs_again():
    tape = Tape("fp32")
    with tape.checkpoint(()):
        y = _add(tape, "one", tape.given("x", (2,), "fp32"), "y")
        tape.save("softmax", y)
    assert [line.module for line in tape.lines() if line.phase == "recompute"] == ["one"]


def test_numbers_that_autograd_keeps_survive_a_checkpoint():
    tape = Tape("fp32")
    with tape.checkpoint(()):
        tape.save_number("mul", "scale")
        _add(tape, "one", tape.given("x", (2,), "fp32"), "y")
    (kept,) = tape.activations()
    assert (kept.num_bytes, kept.number_format) == (8, "fp64")
    assert [line.phase for line in tape.lines()] == ["forward"]


def test_the_backward_pass_runs_from_the_last_operation_to_the_first():
    tape = Tape("fp32")
    for path in ("a", "b"):
        tape.run(path, ops.pointwise("mul", 2), "fp32")
        tape.then(path, ops.pointwise_backward("mul", 2), "fp32")
    assert [(line.module, line.phase) for line in tape.lines()] == [
        ("a", "forward"),
        ("b", "forward"),
        ("b", "backward"),
        ("a", "backward"),
    ]


def test_a_cast_copies_there_and_its_gradient_back():
    tape = Tape("bf16")
    x = tape.given("x", (10,), "fp32", requires_grad=True)
    assert tape.cast("up", "x", x, "fp32") is x
    y = tape.cast("up", "x in BF16", x, "bf16")
    forward, backward = tape.lines()
    assert (y.number_format, y.storage != x.storage) == ("bf16", True)
    assert (forward.work.bytes_read, forward.work.bytes_written) == (4 * 10, 2 * 10)
    assert (backward.work.bytes_read, backward.work.bytes_written) == (2 * 10, 4 * 10)


def test_several_readers_of_a_tensor_add_their_gradients():
    tape = Tape("fp32")
    x = tape.given("x", (10,), "fp32", requires_grad=True)
    tape.fan_out("a", x, 3)
    assert sum(line.total.flops_full for line in tape.lines()) == (3 - 1) * 10
    tape.fan_out("a", tape.given("y", (10,), "fp32", requires_grad=False), 3)
    assert sum(line.total.flops_full for line in tape.lines()) == (3 - 1) * 10
