from dataclasses import dataclass, field
from typing import Literal

import pytest

from torchledger.config import ConfigError, load, meant, wrong_in_all


@dataclass(frozen=True, slots=True)
class Heads:
    num_heads: int
    kind: Literal["full", "latent"] = "full"


@dataclass(frozen=True, slots=True)
class Net:
    heads: Heads
    hidden_size: int = 12
    is_tied: bool = False

    @staticmethod
    def mistakes(net):
        """A rule of two fields, one of one, one of a flag, one of a choice."""
        if net.hidden_size % net.heads.num_heads:
            yield "hidden_size", f"{net.hidden_size} is not divisible by {net.heads.num_heads}"
        if net.hidden_size < 1:
            yield "hidden_size", f"must be at least 1, is {net.hidden_size}"
        if net.is_tied:
            yield "is_tied", "is not built"
        if net.heads.kind == "full":
            yield "heads.kind", "full is not built"


@dataclass(frozen=True, slots=True)
class Run:
    net: Net = field(default_factory=lambda: Net(Heads(2)))
    steps: int = 1

    @staticmethod
    def find_mistakes(given):
        """Those of the net, and one of its own."""
        if "net" in given:
            yield from ((f"net.{place}", text) for place, text in Net.mistakes(given["net"]))
        if given.get("steps", 1) < 1:
            yield "steps", "must be at least 1"


def wrong(table):
    return wrong_in_all(meant(None, Net, table=table), Net.mistakes)


def test_what_is_wrong_with_the_values_that_were_read_is_known_whatever_the_others_mean():
    table = {"heads": {"num_heads": 4, "kind": "half"}, "hidden_size": -6, "is_tied": True, "colour": 3}
    assert wrong(table) == [
        ("hidden_size", "-6 is not divisible by 4"),
        ("hidden_size", "must be at least 1, is -6"),
        ("is_tied", "is not built"),
    ]  # the kind that was meant may be the other one


@pytest.mark.parametrize("heads", ["many", 2.5, None])
def test_a_rule_that_reads_an_unread_value_is_silent(heads):
    given = {} if heads is None else {"num_heads": heads}
    assert wrong({"heads": given | {"kind": "latent"}, "hidden_size": 7}) == []


def test_a_field_whose_name_was_misspelt_may_have_any_value():
    table = {"heads": {"num_head": 5, "kind": "latent"}, "hidden_sizes": 25}
    assert wrong(table) == []


def test_a_table_that_is_none_or_is_missing_is_stood_in_for_as_a_whole():
    only = [("is_tied", "is not built")]  # the table that was meant may well have another kind than its default
    assert wrong({"heads": 3, "is_tied": True}) == only
    assert wrong({"is_tied": True}) == only


def test_where_a_small_number_makes_no_sense_the_other_fields_still_have_every_value():
    """One unread size at a time is changed from small ones and from large ones: of two sizes, all four pairs."""
    read = meant(None, Net, table={"heads": {"num_heads": "x", "kind": "latent"}, "hidden_size": "y"})
    assert {(each.heads.num_heads, each.hidden_size) for each in read} >= {(1, 1), (1, 720_720), (720_720, 720_720)}
    assert (720_720, 1) in {(each.heads.num_heads, each.hidden_size) for each in read}


def test_without_mistakes_there_is_one_reading():
    assert meant(None, Net, table={"heads": {"num_heads": 3}}) == (Net(Heads(3)),)


def test_a_class_that_judges_itself_does_so_beside_tables_that_cannot_be_read():
    with pytest.raises(ConfigError) as refused:
        load(None, Run, table={"net": {"heads": {"num_heads": "2", "kind": "latent"}, "is_tied": True}, "steps": 0})
    assert [(place, text.split(" [")[0]) for place, text in refused.value.mistakes] == [
        ("net.heads.num_heads", "expected a whole number, got '2'; write 2, without quotes"),
        ("steps", "must be at least 1"),
        ("net.is_tied", "is not built"),
    ]
