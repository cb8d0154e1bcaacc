"""Bytes alive as long as somebody holds them."""

from torchledger.formula.lifetimes.memory import Block, Memory


def test_a_block_is_alive_as_long_as_it_is_held():
    memory = Memory()
    first = Block(memory, 10)
    second = Block(memory, 5, "gradients")
    also = first
    del first
    assert memory.total == 10 + 5
    del also
    assert (memory.total, memory.most) == (5, 15)
    assert memory.fullest == {"temporaries": 10, "gradients": 5}
    del second
    assert memory.total == 0


def test_a_block_may_turn_out_to_be_of_another_part():
    memory = Memory()
    block = Block(memory, 10)
    block.becomes("activations")
    assert memory.now == {"temporaries": 0, "activations": 10}
    del block
    assert memory.now["activations"] == 0


def test_the_fullest_moment_can_begin_anew():
    memory = Memory()
    held = Block(memory, 3)
    memory.place = "late"
    gone = Block(memory, 10)
    del gone
    memory.forget()
    assert (memory.most, memory.fullest_place) == (3, "late")
    del held
