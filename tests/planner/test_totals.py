"""`StageTotals`: sums over blocks, by hand."""

from torchledger.formula import Activation
from torchledger.planner.stage import Block, Stage
from torchledger.planner.totals import StageTotals, totals


def block(name, kind, num_parameters, kept, **rest):
    known = {
        "num_expert_parameters": 0,
        "num_trainable": num_parameters,
        "num_trainable_expert": rest.get("num_expert_parameters", 0),
        "num_tensors": 1,
        "largest_tensor": num_parameters,
        "activations": (Activation(name, (kept,), "fp8", kept, 1, "op"),),
        "recomputed_bytes": 0,
        "forward_temporary_bytes": 0,
        "backward_temporary_bytes": 0,
        "output_bytes": 8,
    }
    return Block(name=name, kind=kind, lines=(), num_parameters=num_parameters, kept_bytes=kept, **known | rest)


EMBEDDING = block("embedding", "embedding", 1000, 16)
LAYER = block("layer", "layer", 300, 50, recomputed_bytes=40, backward_temporary_bytes=10, forward_temporary_bytes=5)
MIXTURE = block("mixture layer", "layer", 100, 20, num_expert_parameters=900, backward_temporary_bytes=30)
HEAD = block("head", "head", 1000, 200, forward_temporary_bytes=70, backward_temporary_bytes=90)


def test_one_stage_with_everything():
    """Parameters and activations are counted with how many there are, and once what is largest."""
    found = totals((((EMBEDDING, 1), (LAYER, 4), (MIXTURE, 2), (HEAD, 1)),), (1.0,), 0)
    assert found.num_parameters == 1000 + 4 * 300 + 2 * 100 + 1000
    assert found.num_expert_parameters == found.num_trainable_expert == 2 * 900
    assert found.num_ends == 1000 + 1000
    assert (found.largest_layer, found.largest_layer_expert) == (100, 900)  # 1,000 are more than 300
    assert found.activation_bytes == 16 + 4 * 50 + 2 * 20
    assert found.micro_batch_bytes == 16 + 4 * 50 + 2 * 20
    assert found.head_bytes == 200 + 90
    assert (found.layer_bytes, found.recomputed_bytes) == (40 + 10, 40)
    assert (found.layer_kept_bytes, found.largest_block, found.largest_tensor) == (50, 200, 1000)


def test_micro_batches_in_flight_keep_theirs():
    """Every micro-batch in flight keeps its activations, logits included; those of the last one are the loss's."""
    found = totals((((LAYER, 2), (HEAD, 1)),), (3.0,), 1)
    assert found.activation_bytes == 3 * (2 * 50) + (3 - 1) * 200
    assert found.micro_batch_bytes == 2 * 50


def test_chunks_have_their_own_number_in_flight():
    """Two chunks of a rank with 4 and 2 micro-batches in flight."""
    found = totals((((EMBEDDING, 1), (LAYER, 2)), ((LAYER, 2),)), (4.0, 2.0), 1)
    assert found.activation_bytes == 4 * (16 + 2 * 50) + 2 * (2 * 50)
    assert found.num_parameters == 1000 + 4 * 300


def test_neighbours_of_a_stage():
    """The first and the last stage have one neighbour, those between two, a stage alone none."""
    stages = [Stage(index, (((LAYER, 1),),), (1.0,)) for index in range(3)]
    assert [StageTotals.of(each, 3).num_neighbours for each in stages] == [1, 2, 1]
    assert StageTotals.of(stages[0]).num_neighbours == 0
