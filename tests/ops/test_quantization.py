from torchledger import ops


def test_rounding_to_a_grid_counts_what_its_formula_does(counted):
    """x/s as a product, rounded, + z, two compares; and back (q - z)·s."""
    q = counted.number() * 0.1
    q = q * 1.0 + 3.0  # rounded, then shifted
    _ = (q > -128.0, q < 127.0)
    assert ops.quantized("quantize", 1)[0].work.flops_full == counted.taken()[0]
    _ = (counted.number() - 3.0) * 0.1
    assert ops.quantized("dequantize", 1)[0].work.flops_full == counted.taken()[0]


def test_both_ways_keep_a_mask():
    """Two more compares tell which elements were inside."""
    both = ops.quantized("quantize", 10)[0].work.flops_full + ops.quantized("dequantize", 10)[0].work.flops_full
    assert ops.quantized("fake_quantize", 10)[0].work.flops_full == both + 2 * 10
