import pytest


@pytest.fixture
def texts(tmp_path):
    """A folder of eight small texts."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.txt").write_text(f"file {number} says hello to the world\n" * 100)
    return folder


def test_a_folder_becomes_token_files(ask, texts, tmp_path):
    """Training and validation tokens, the tokenizer, and the entropy to hold the loss against."""
    answer = ask("prepare", texts, "--out", tmp_path / "data", "--tokenizer", "bytes", "--validation", "25%")
    assert answer.code == 0
    assert "unigram entropy" in answer.out
    assert (tmp_path / "data" / "train.tokens").is_file()


def test_identical_work_is_reused(ask, texts, tmp_path):
    """The same question again does nothing, and says so."""
    words = ("prepare", texts, "--out", tmp_path / "data", "--tokenizer", "bytes", "--json")
    assert ask(*words).json["answer"]["reused"] is False
    assert ask(*words).json["answer"]["reused"] is True


def test_other_data_in_the_folder_is_replaced_only_by_force(ask, texts, tmp_path):
    """Exit code 2 and the way out; with --force the folder has the new data."""
    words = ("prepare", texts, "--out", tmp_path / "data", "--tokenizer", "bytes", "--json")
    assert ask(*words).code == 0
    refused = ask(*words, "--seed", 7)
    assert refused.code == 2
    assert "has prepared data in it already" in refused.err
    assert "--force" in refused.err
    assert ask(*words, "--seed", 7, "--force").json["answer"]["reused"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("/nowhere/at/all", "--out", "data"), "no file or folder"),
        (("stdlib", "--out", "data", "--validation", "150%"), "above 0 and below 1"),
        (("stdlib", "--out", "data", "--validation", "0"), "validated on text that it was not trained on"),
        (("stdlib",), "--out"),
    ],
)
def test_a_wrong_question_is_exit_code_2(ask, tmp_path, monkeypatch, words, message):
    """A source that is not there, a share that is none, a missing folder."""
    monkeypatch.chdir(tmp_path)
    answer = ask("prepare", *words)
    assert answer.code == 2
    assert message in answer.err


def test_another_field_and_several_workers(ask, tmp_path):
    """JSON lines are read by the field that is named, on as many processes as are asked for."""
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"content": "story {i}"}}\n' for i in range(40)))
    words = ("prepare", path, "--out", tmp_path / "data", "--tokenizer", "bytes", "--validation", "30%", "--json")
    wrong = ask(*words)
    assert wrong.code == 2
    assert "its fields: content (--text-field names another)" in wrong.err
    answer = ask(*words, "--text-field", "content", "--workers", 2).json["answer"]
    assert answer["train"]["num_documents"] + answer["validation"]["num_documents"] == 40
