from torchledger.planner import Holding, solve, state_bytes
from torchledger.view.plan import holding_screen, napkin_screen
from torchledger.view.terminal import draw

NAPKIN = {"params": 70e9, "tokens": 15e12, "num_chips": 1024, "mfu": 0.5, "peak_flops_per_s": 989.4e12}


def test_the_answer_and_its_arithmetic_are_on_the_screen():
    """144 days, the solved quantity marked, and every step of the arithmetic."""
    text = draw(napkin_screen(solve(**NAPKIN), "H100 SXM"))
    assert "144 days" in text.splitlines()[0]
    assert "(solved)" in text
    for line in solve(**NAPKIN).arithmetic:
        assert line in text


def test_the_state_is_held_against_the_memory():
    """70B times 16 bytes over 1,024 cards of 80 GB fits, over 8 cards it does not."""
    napkin = solve(**NAPKIN)
    for num_chips, verdict in ((1024, ", fits"), (8, "does not fit")):
        holding = Holding("nominal", num_chips, 80 * 10**9, state_bytes("bf16"))
        assert verdict in draw(napkin_screen(napkin, "H100 SXM", [holding]))


def test_a_budget_leaves_the_split_open():
    """Where only chip-hours are known, chips and days say that they are open."""
    napkin = solve(money=1e6, price_per_chip_hour=2.0, tokens=1e12, mfu=0.5, peak_flops_per_s=1e15)
    assert draw(napkin_screen(napkin, "H100")).count("open: any split of the chip-hours") == 2


def test_every_precision_is_shown_beside_the_chosen_one():
    """The largest model by every precision, on nominal and on reported bytes."""
    holdings = [
        Holding(label, 8, num_bytes, state_bytes(precision))
        for precision in ("fp32", "bf16-pure")
        for label, num_bytes in (("nominal", 80 * 10**9), ("reported", 81559 * 2**20))
    ]
    text = draw(holding_screen(holdings, "H100 SXM", ["activations are not counted"], holdings[0]))
    assert text.startswith("40B parameters are the most that 8 × H100 SXM can hold")
    assert "4+4+8 = 16" in text
    assert "80B" in text
    assert "79.6 GiB" in text
    assert "activations are not counted" in text
