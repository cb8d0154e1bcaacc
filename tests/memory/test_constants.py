from torchledger.memory.constants import CUDA

MIB = 1 << 20


def test_the_constants_are_those_of_the_header():
    """c10/core/AllocatorConfig.h: kMinBlockSize 512, kSmallSize 1 MiB, kSmallBuffer 2 MiB, kMinLargeAlloc 10 MiB."""
    assert CUDA.min_block_bytes == 512
    assert CUDA.small_request_bytes == 1048576 == MIB
    assert CUDA.small_segment_bytes == 2097152 == CUDA.large_rounding_bytes
    assert CUDA.min_large_request_bytes == 10485760 == 10 * MIB
    assert CUDA.large_segment_bytes == 20971520 == 20 * MIB
    assert "PyTorch 2.13" in CUDA.source
