import tomllib
from importlib import resources

import pytest

from torchledger import machine
from torchledger.planner.fabric_facts import host_bus, link_facts, nccl, network_facts

TABLES = tomllib.loads(resources.files("torchledger.planner").joinpath("data/links.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["link", "network", "library"])
def test_every_fact_has_a_source_and_a_date(kind):
    """A constant without a source is a guess."""
    assert all(row["source"] and row["date"] for row in TABLES[kind].values())


def test_the_longest_name_wins():
    """A bridge is no switch; a reduced NVLink 4 is one; an unknown link has the default."""
    assert link_facts("NVLink 4 bridge (2- or 4-way)").switch_share is None
    assert link_facts("NVLink 4 (reduced)").switch_share is not None
    assert link_facts("subspace") == link_facts("default of everything")
    assert network_facts("EFA v4").share != network_facts("EFA v1").share
    assert network_facts("EFA v2").share == network_facts("EFA v1").share


def test_shares_are_shares():
    """Above nothing and at most all."""
    rows = [*TABLES["link"].values(), *TABLES["network"].values()]
    assert all(0 < row["share"] <= 1 and 0 < row.get("switch_share", 1) <= 1 for row in rows)


def test_every_link_of_the_catalog_has_facts():
    """By its kind or by default."""
    links = {chip.scale_up.name for chip in machine.list_chips() if chip.scale_up}
    assert all(0 < link_facts(name).share <= 1 for name in links)


def test_the_librarys_tables_are_whole():
    """One value for each of three protocols; the tree's correction from 64 bytes to 512 MiB, which is 24 sizes."""
    facts = nccl()
    assert set(facts.base_s) == set(facts.link_hop_s) == set(facts.network_hop_s) == {"ring", "tree"}
    assert [len(row) for row in facts.tree_correction] == [24] * 3
    assert 64 * 2**23 == 512 * 2**20
    assert facts.tree_share[0] == pytest.approx(0.92 / 3.8, abs=1e-3)
    assert facts.tree_share[1] == pytest.approx(0.92 * 120 / 128)


def test_a_card_has_a_bus_and_a_module_none():
    """PCIe 4 x16 is 32 GB/s each way."""
    assert host_bus("PCIe 4") == (8, 32e9)
    assert host_bus("SXM5") is None
