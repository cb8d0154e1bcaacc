import tomllib

import pytest

from torchledger.spec import SpecError, presets
from torchledger.spec.presets import catalog


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_says_its_name_and_its_source(name):
    """The file, the model in it and the name asked for are one; published figures say where they are published."""
    spec = presets.get(name)
    assert spec.name == name
    assert spec.source.startswith("https://") or name == "stdlib-small"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("llama-3-8b", "llama-3-8b"),
        ("Llama-3-8B", "llama-3-8b"),
        ("llama_3_8b", "llama-3-8b"),
        ("llama3-8b", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("GPT-2", "gpt2"),
        ("gpt2-small", "gpt2"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("facebook/opt-13b", "opt-13b"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("gpt3", "gpt-3-175b"),
        ("bigscience/bloom", "bloom-176b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
    ],
)
def test_a_preset_has_many_names(said, meant):
    """Case and separators do not matter, Hugging Face ids work, and the point keeps sizes apart."""
    assert presets.find(said) == meant


def test_no_two_presets_share_a_name():
    """Squeezed names and aliases are all different, and every alias leads to a preset."""
    by_preset = tomllib.loads(catalog._ALIASES.read_text("utf-8"))
    spellings = [catalog._squeezed(name) for name in presets.names()]
    spellings += [catalog._squeezed(alias) for aliases in by_preset.values() for alias in aliases]
    assert len(spellings) == len(set(spellings))
    assert set(by_preset) <= set(presets.names())


def test_names_stand_in_order_of_size():
    """13b is more than 7b although 1 stands before 7; 560m is less than 1.7b."""
    names = presets.names()
    assert names.index("llama-2-7b") < names.index("llama-2-13b") < names.index("llama-2-70b")
    assert names.index("bloom-560m") < names.index("bloom-1.7b")
    assert names.index("opt-350m") < names.index("opt-1.3b") < names.index("opt-13b")


def test_the_table_is_every_preset():
    """The table has each name once, in the order of the names."""
    assert tuple(spec.name for spec in presets.table()) == presets.names()


def test_one_preset_reads_one_file(monkeypatch):
    """Asking for one preset reads no other."""
    read = []

    def load(path, cls):
        read.append(path.name)
        return original(path, cls)

    original = catalog.load
    monkeypatch.setattr(catalog, "load", load)
    presets.get("gpt2")
    assert read == ["gpt2.toml"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("llama-9b", "unknown model 'llama-9b'; did you mean 'llama-7b'?"),
        ("pythia", "did you mean one of pythia-70m, pythia-160m, "),
        ("EleutherAI/pythia-1.5b", "did you mean 'pythia-1.4b'?"),
        ("zzz", "known: "),
        ("", "known: "),
    ],
)
def test_an_unknown_name_gets_a_suggestion(said, told):
    """The message has the name that was probably meant, the whole family, or all there are."""
    with pytest.raises(SpecError) as raised:
        presets.get(said)
    assert told in str(raised.value)
