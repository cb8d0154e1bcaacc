import torch

from torchledger.trainer.resident import peak_resident_bytes, resident_bytes


def test_memory_that_is_written_is_resident_and_stays_in_the_peak():
    """Writing 64 MiB raises what is resident by about as much; freeing it lowers that, not the peak."""
    before = resident_bytes()
    block = torch.ones(2**26, dtype=torch.uint8)
    during = resident_bytes()
    assert during - before > 0.9 * block.numel()
    del block
    assert resident_bytes() - before < 0.1 * 2**26
    assert peak_resident_bytes() - before > 0.9 * 2**26
