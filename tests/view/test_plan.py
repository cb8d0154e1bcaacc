"""The napkin's screen: what is known, what is open, and what is kept apart."""

from torchledger.machine import get
from torchledger.planner import Holding, solve, state_bytes
from torchledger.planner.run import run_of
from torchledger.planner.terms import RunTerms
from torchledger.view.plan import headline, napkin_screen
from torchledger.view.screen import Facts, Lines
from torchledger.view.terminal import draw

NAPKIN = solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, peak_flops_per_s=989.4e12)
STATE = state_bytes("bf16")


def facts(blocks):
    return dict(next(block for block in blocks if isinstance(block, Facts)).pairs)


def titles(blocks):
    return [block.title for block in blocks if isinstance(block, Lines)]


def test_the_answer_is_one_sentence():
    """Who, on what, at which MFU, how long."""
    assert headline(NAPKIN, "H100 SXM") == ("70B parameters, 15T tokens on 1,024 × H100 SXM at 50 % MFU: 144 days")


def test_what_was_solved_is_marked_and_what_is_unknown_names_its_flag():
    """Days carry `(solved)`; money without a price says how to give one."""
    shown = facts(napkin_screen(NAPKIN, "H100"))
    assert shown["days"] == "143.9  (solved)"
    assert "--price" in shown["money"]
    assert "energy" not in shown  # nothing is known of the run around it


def test_energy_and_losses_stand_where_the_run_is_known():
    """Energy among the facts, losses in a block of their own that says they are not in the answer."""
    run = run_of(NAPKIN, get("h100"), STATE, RunTerms())
    blocks = napkin_screen(NAPKIN, "H100", (), run)
    assert facts(blocks)["energy"].endswith("MWh")
    assert "outside of steps, not in the answer above" in titles(blocks)
    lost = next(block for block in blocks if isinstance(block, Lines) and block.title.startswith("outside"))
    assert [line.partition(":")[0] for line in lost.lines] == [*run.losses.shares, "wall clock"]


def test_a_budget_leaves_chips_and_days_open():
    """Any split of the chip-hours will do, and the facts say so."""
    budget = solve(money=1e6, price_per_chip_hour=2.0, tokens=1e12, mfu=0.5, peak_flops_per_s=1e15)
    run = run_of(budget, get("h100"), STATE, RunTerms())
    blocks = napkin_screen(budget, "H100", (), run)
    assert facts(blocks)["days"] == "open: any split of the chip-hours"
    assert not any(title.startswith("outside") for title in titles(blocks))


def test_the_state_of_every_memory_is_shown():
    """One line for the bytes of a parameter, one for each memory: what it takes and whether it fits."""
    holdings = [Holding("nominal", 8, 80 * 10**9, STATE), Holding("reported by the driver", 8, 81559 * 2**20, STATE)]
    blocks = napkin_screen(NAPKIN, "H100", holdings)
    state = next(block for block in blocks if isinstance(block, Lines) and block.title.startswith("training state"))
    assert state.lines[0] == STATE.text
    assert state.lines[1].startswith("140 GB of 80 GB a chip, nominal: 175 %, does not fit")
    assert "GiB" in state.lines[2]


def test_the_answer_and_its_arithmetic_are_on_the_screen():
    """144 days, the solved quantity marked, and every step of the arithmetic."""
    text = draw(napkin_screen(NAPKIN, "H100 SXM"))
    assert "144 days" in text.splitlines()[0]
    assert "(solved)" in text
    for line in NAPKIN.arithmetic:
        assert line in text


def test_the_state_is_held_against_the_memory():
    """70B times 16 bytes over 1,024 cards of 80 GB fits, over 8 cards it does not."""
    for num_chips, verdict in ((1024, ", fits"), (8, "does not fit")):
        holding = Holding("nominal", num_chips, 80 * 10**9, state_bytes("bf16"))
        assert verdict in draw(napkin_screen(NAPKIN, "H100 SXM", [holding]))


def test_a_budget_leaves_the_split_open():
    """Where only chip-hours are known, chips and days say that they are open."""
    napkin = solve(money=1e6, price_per_chip_hour=2.0, tokens=1e12, mfu=0.5, peak_flops_per_s=1e15)
    assert draw(napkin_screen(napkin, "H100")).count("open: any split of the chip-hours") == 2
