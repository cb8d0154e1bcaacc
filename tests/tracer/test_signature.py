import torch

from torchledger.tracer import Recorder, Signature, TensorMeta, number_format, real_arguments


def _signatures(run):
    with Recorder() as recorder:
        run()
    return [call.signature for call in recorder.trace().calls]


def test_equal_calls_have_equal_hashable_signatures():
    x, y = torch.zeros(2, 3), torch.zeros(3, 2)
    one, two, other = _signatures(lambda: (x @ y, x @ y, y @ x))
    assert one == two
    assert one is two, "one object for equal calls"
    assert len({one, two, other}) == 2


def test_numbers_of_different_type_are_different_calls():
    """1, 1.0 and True are equal in Python, not to an operation."""
    x = torch.zeros(2, dtype=torch.int64)
    assert len(set(_signatures(lambda: (x + 1, x + 1.0, x + True)))) == 3  # the boolean is the case


def test_strides_dtype_and_aliasing_are_told_apart():
    """x·x is one storage, x·y two; a transposed operand is another call."""
    x, y = torch.zeros(3, 3), torch.zeros(3, 3)
    signatures = _signatures(lambda: (x * x, x * y, x * y.t(), x * y.double()))
    products = [signature for signature in signatures if signature.op == "aten.mul.Tensor"]
    assert len(set(products)) == 4
    assert [meta.storage for meta in products[0].tensors()] == [0, 0]
    assert [meta.storage for meta in products[1].tensors()] == [0, 1]


def test_a_replay_has_the_shapes_strides_and_aliasing_of_the_call():
    """A view into a larger storage, twice: the replayed tensors share one storage of the same size."""
    base = torch.zeros(10, 4)
    (signature,) = _signatures(lambda: base[2:6].t().add_(base[2:6].t()))
    (left, right), _ = real_arguments(signature)
    assert (tuple(left.shape), left.stride(), left.storage_offset()) == ((4, 4), (1, 4), 8)
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
    assert left.untyped_storage().nbytes() == 10 * 4 * 4
    signature.overload()(left, right)


def test_lists_and_keywords_come_back():
    parts = [torch.zeros(2), torch.zeros(3)]
    (signature,) = _signatures(lambda: torch.cat(parts, dim=0))
    args, _ = real_arguments(signature)
    assert [tuple(tensor.shape) for tensor in args[0]] == [(2,), (3,)]
    assert tuple(signature.overload()(*args).shape) == (5,)


def test_arguments_are_bound_by_their_names():
    (signature,) = _signatures(lambda: torch.nn.functional.softmax(torch.zeros(2, 3), dim=-1))[1:]
    bound = signature.bound()
    assert (bound["dim"], bound["half_to_float"], bound["self"].shape) == (-1, False, (2, 3))


def test_an_expanded_tensor_is_read_once():
    """Stride 0 repeats an element: 8 elements, 2 of them distinct."""
    meta = TensorMeta((4, 2), (0, 1), torch.float32)
    assert (meta.num_elements, meta.num_bytes) == (8, 2 * 4)


def test_a_name_leads_back_to_the_operation():
    assert Signature("aten.mm.default", ()).overload() is torch.ops.aten.mm.default


def test_number_formats_have_the_houses_names():
    assert [number_format(t) for t in (torch.float32, torch.bfloat16, torch.bool)] == ["fp32", "bf16", "bool"]
