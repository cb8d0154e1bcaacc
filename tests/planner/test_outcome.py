"""What a plan says of itself: three measures of memory, the slowest and the fullest stage."""

from torchledger.planner.outcome import CAUSES, PARTS, StageMemory


def test_three_measures_of_one_rank():
    """nvidia-smi sees all parts; the allocator has no context and no communicators; tensors no fragmentation."""
    parts = {"parameters": 100, "activations": 50, "fragmentation": 7, "communication buffers": 20, "context": 9}
    memory = StageMemory(parts, host_bytes=1000, communicator_bytes=15)
    assert memory.peak_bytes == 100 + 50 + 7 + 20 + 9
    assert memory.reserved_bytes == 100 + 50 + 7 + 20 + 9 - 9 - 15
    assert memory.allocated_bytes == 100 + 50 + 20 - 15


def test_host_memory_is_no_part_of_the_devices():
    """What was moved to the host is told beside."""
    assert StageMemory({"parameters": 5}, host_bytes=1000).peak_bytes == 5


def test_names_are_said_once():
    """Causes and parts are lists of different names."""
    assert len(set(CAUSES)) == len(CAUSES)
    assert len(set(PARTS)) == len(PARTS)
