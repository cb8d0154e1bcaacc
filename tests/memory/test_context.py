from torchledger.memory.context import cuda_context

GIB = 1 << 30


def test_the_range_is_the_measured_one_and_names_its_source():
    """0.71 GiB after CUDA starts, 1.42 GiB with kernels loaded."""
    context = cuda_context()
    assert round(context.low_bytes / GIB, 2) == 0.71
    assert round(context.high_bytes / GIB, 2) == 1.42
    assert context.source


def test_the_device_shows_the_context_beside_what_is_reserved():
    context = cuda_context()
    assert context.device_bytes(GIB) == (GIB + context.low_bytes, GIB + context.high_bytes)
