def test_dense_and_sparse_stand_side_by_side(ask):
    """H100: 989.4 TFLOP/s dense, 1,979 with 2:4 sparsity."""
    row = next(line for line in ask("machines", "h100").out.splitlines() if line.startswith("bf16 peak"))
    assert "989.4 TFLOP/s" in row
    assert "1,979 TFLOP/s" in row
    assert "2:4" in row


def test_all_are_listed(ask):
    """Without a name, every chip of the catalog with its key."""
    rows = ask("machines", "--json").json["answer"]
    out = ask("machines").out
    assert len(rows) > 60
    assert all(row["key"] in out for row in rows)


def test_an_unknown_name_has_close_ones(ask):
    """A wrong name is exit code 2 with close names and the way to add a row."""
    answer = ask("machines", "h1000")
    assert answer.code == 2
    assert "h100" in answer.err


def test_a_row_of_ones_own(ask, tmp_path):
    """A user's file is read before the catalog, and may start from one of its rows."""
    own = tmp_path / "own.toml"
    own.write_text(
        '[mine]\nextends = "h100-sxm"\nname = "Mine"\ndate = "2026-01-01"\nsource = "measured"\nconfidence = "low"\n'
        'notes = "mine"\ndense.bf16 = 500e12\n',
        encoding="utf-8",
    )
    answer = ask("machines", "mine", "--catalog", own, "--json").json["answer"]
    assert {peak["number_format"]: peak["dense_flops_per_s"] for peak in answer["peaks"]}["bf16"] == 500e12


def test_the_machine_at_hand(ask):
    """`--here` tells processor, cores and memory as the system does; a name beside it is wrong usage."""
    answer = ask("machines", "--here")
    assert answer.code == 0
    assert "free of" in answer.out
    rows = ask("machines", "--here", "--json").json["answer"]
    assert rows[0]["kind"] == "cpu"
    assert 0 < rows[0]["free_bytes"] <= rows[0]["total_bytes"]
    assert ask("machines", "h100", "--here").code == 2
