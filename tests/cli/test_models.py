from torchledger import spec


def test_all_are_listed_with_their_parameters(ask):
    """Every preset, with its number of parameters to the last one."""
    out = ask("models").out
    assert all(f"\n{name} " in out for name in spec.presets.names())
    assert "124,439,808" in out
    assert "8,030,261,248" in out


def test_the_start_of_a_name_narrows_the_list(ask):
    """`models llama-3` lists those that start so."""
    names = [row["name"] for row in ask("models", "llama-3", "--json").json["answer"]]
    assert "llama-3-8b" in names
    assert all(name.startswith("llama-3") for name in names)


def test_one_is_shown_whole(ask, model_file):
    """A preset or a file is shown with its whole specification."""
    answer = ask("models", "gpt2", "--json").json["answer"]
    assert answer["num_parameters"] == 124_439_808
    assert answer["spec"]["hidden_size"] == 768
    assert "attention.num_heads" in ask("models", model_file).out


def test_an_unknown_name_is_guessed(ask):
    """A wrong name is exit code 2 with what was probably meant."""
    answer = ask("models", "gtp2")
    assert answer.code == 2
    assert "did you mean" in answer.err
