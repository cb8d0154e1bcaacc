"""What `train` refuses before anything runs."""

import pytest
import torch


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run.toml", "--set", "data=nowhere"), "run prepare first"),
        (("run.toml", "--set", "data=nowhere", "--set", "num_stepz=3"), "data: nothing is at nowhere"),
        (("run.toml", "--set", "precision=fp16", "--set", "device=cpu"), "fp16"),
        (("run.toml", "--resume", "runs/none"), "--resume takes configuration and folder from the run"),
        (("--resume", "runs/none"), "runs/none"),
        (("run.toml", "--set", "num_stepz=3"), "did you mean num_steps"),
        (("run.toml", "--device", "cuda"), "not available"),
    ],
)
def test_a_wrong_question_is_exit_code_2(ask, here, words, message):
    """Each says what is wrong, without a traceback."""
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    answer = ask("train", *words)
    assert answer.code == 2, answer.err
    assert message in answer.err
