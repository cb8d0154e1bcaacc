import pytest

from torchledger.trainer.utilization import Yardstick


def test_each_share_has_its_own_numerator():
    """A step of 2 s against 100 FLOP/s: 60, 50 and 90 FLOPs are 30 %, 25 % and 45 %."""
    yardstick = Yardstick(60.0, 50.0, 90.0, 100.0)
    shares = (yardstick.mfu(2.0), yardstick.mfu_causal(2.0), yardstick.hfu(2.0))
    assert shares == pytest.approx((0.30, 0.25, 0.45))


@pytest.mark.parametrize("yardstick", [Yardstick(), Yardstick(model_flops=1.0), Yardstick(peak_flops_per_s=1.0)])
def test_what_is_not_known_gives_nothing(yardstick):
    """Without a numerator or a peak there is no utilisation, not 0 %."""
    assert yardstick.mfu(1.0) is None
    assert yardstick.hfu(1.0) is None
