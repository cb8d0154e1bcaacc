from torchledger.cli.complete import chip_names, model_names
from torchledger.cli.main import COMMANDS, torchledger_command


def test_commands_chips_and_models_complete():
    """TAB offers commands, chips and presets that start like what was typed."""
    from click.shell_completion import ShellComplete

    completer = ShellComplete(torchledger_command, {}, "torchledger", "_TORCHLEDGER_COMPLETE")
    assert {item.value for item in completer.get_completions([], "")} == set(COMMANDS)
    assert "h100-sxm" in {item.value for item in completer.get_completions(["plan", "--on"], "h1")}
    assert "gpt2-xl" in {item.value for item in completer.get_completions(["count"], "gpt2")}


def test_what_does_not_start_so_is_not_offered():
    """Only names with the typed start are offered; for models, files too."""
    assert {item.value for item in chip_names(None, None, "zzz")} == set()
    assert [(item.value, item.type) for item in model_names(None, None, "zzz")] == [("zzz", "file")]
