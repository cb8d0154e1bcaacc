"""Where an allocation was made. The frames are cut from what PyTorch records, innermost first."""

from torchledger.memory.frames import origin_of


def frame(filename, line, name):
    return {"filename": filename, "line": line, "name": name}


def test_the_line_is_the_innermost_of_the_user():
    """Lines of libraries and of C++ are passed over."""
    origin = origin_of(
        [
            frame("??", 0, "at::_ops::index_Tensor::redispatch(c10::DispatchKeySet)"),
            frame("VariableType_1.cpp", 0, "torch::autograd::VariableType::index_Tensor(c10::DispatchKeySet)"),
            frame("/home/me/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py", 1790, "_call_impl"),
            frame("/home/me/project/model.py", 54, "forward"),
            frame("/home/me/project/train.py", 9, "<module>"),
        ]
    )
    assert (origin.line, origin.operation, origin.node) == ("model.py:54 forward", "index_Tensor", "")
    assert origin.text == "model.py:54 forward"


def test_in_the_backward_pass_it_is_the_node():
    """The autograd thread has no Python frame."""
    origin = origin_of(
        [
            frame("??", 0, "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)"),
            frame("", 0, "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)"),
            frame("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)"),
        ]
    )
    assert (origin.text, origin.operation) == ("MulBackward0", "mul_Tensor")


def test_gradients_that_are_kept_say_so():
    origin = origin_of([frame("", 0, "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)")])
    assert origin.node == "AccumulateGrad"


def test_a_stack_of_libraries_alone_gives_their_innermost_line():
    origin = origin_of([frame(r"C:\env\Lib\site-packages\torch\optim\adamw.py", 7, "step")])
    assert origin.line == "adamw.py:7 step"


def test_no_stack_is_told_as_such():
    assert origin_of([]).text == "(not recorded)"
