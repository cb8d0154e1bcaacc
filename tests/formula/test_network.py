"""The lecture's linear networks: closed forms for parameters, FLOPs and kept activations."""

from hypothesis import given, settings
from hypothesis import strategies as st

from torchledger.formula import linear_network

sizes = st.integers(1, 300)
few = settings(max_examples=40, deadline=None)


@few
@given(sizes, sizes, sizes)
def test_two_layers_cost_2bd_times_d_plus_k_forward(B, D, K):
    two = linear_network(B, D, 1, outputs=K)
    assert two.ledger.where(phase="forward").flops == 2 * B * D * (D + K)


@few
@given(sizes, sizes, sizes)
def test_their_backward_costs_twice_that_or_2bdd_less_where_the_batch_takes_no_gradient(B, D, K):
    full = linear_network(B, D, 1, outputs=K, input_gradient=True)
    assert full.ledger.where(phase="backward").flops == 4 * B * D * (D + K)
    short = linear_network(B, D, 1, outputs=K)
    assert short.ledger.where(phase="backward").flops == 4 * B * D * K + 2 * B * D * D


@few
@given(sizes, sizes, st.integers(1, 6))
def test_l_layers_have_l_d_squared_parameters_and_keep_b_d_l_elements(B, D, L):
    deep = linear_network(B, D, L)
    assert deep.num_parameters == L * D * D
    assert deep.kept_bytes == B * D * L * 4
    assert deep.ledger.where(phase="forward").flops == L * 2 * B * D * D


@few
@given(
    st.tuples(
        sizes,
        sizes,
        st.integers(1, 6),
        st.one_of(st.none(), sizes),
        st.booleans(),
        st.sampled_from(["fp32", "bf16"]),
    )
)
def test_the_closed_form_and_what_it_leaves_out_are_all_that_is_kept(case):
    B, D, L, K, input_gradient, precision = case
    network = linear_network(B, D, L, outputs=K, input_gradient=input_gradient, precision=precision)
    kept = sum(each.total_bytes for each in network.activations)
    assert kept == network.kept_bytes + sum(network.left_out.values())
    assert kept == network.ledger.total.bytes_kept


def test_what_the_closed_form_leaves_out_has_names():
    assert dict(linear_network(4, 8, 3).left_out) == {"loss": 4}
    assert dict(linear_network(4, 8, 3, outputs=1).left_out) == {"loss": 4, "output": 4 * 4 * 1}
    assert dict(linear_network(4, 8, 3, outputs=1, precision="bf16").left_out) == {
        "loss": 4,
        "output": 2 * 4 * 1,
        "output in FP32, for the loss": 4 * 4 * 1,
        "batch in BF16": 2 * 4 * 8,
        "weights in BF16": 2 * (2 * 8 * 8 + 8 * 1),
    }
    assert dict(linear_network(4, 8, 3).held_anyway) == {"batch": 4 * 4 * 8}


def test_the_first_layer_makes_no_input_gradient_unless_asked():
    def gradients(network):
        return [line.gradient_of for line in network.ledger.where(module="layers.0", phase="backward", kind="matmul")]

    assert gradients(linear_network(4, 8, 2)) == ["weight"]
    assert gradients(linear_network(4, 8, 2, input_gradient=True)) == ["input", "weight"]
