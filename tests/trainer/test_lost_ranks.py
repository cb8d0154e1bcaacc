import pytest

from torchledger.trainer.errors import RankLost
from torchledger.trainer.lost_ranks import telling_lost_ranks
from torchledger.trainer.run_folder import RunFolder

GLOO = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:2970: Connection reset by peer. "
    "This is typically caused by a remote worker hanging or bugs in the application."
)


@pytest.mark.parametrize(
    "words",
    [GLOO, "Connection closed by peer [127.0.0.1]:8617", "NCCL error: ncclRemoteError: A call failed", "Broken pipe"],
)
def test_a_broken_connection_is_told_as_a_lost_rank(tmp_path, words):
    """What gloo and NCCL raise of a peer that has gone becomes one sentence, without their advice."""
    with pytest.raises(RankLost, match="there is no checkpoint yet") as caught, telling_lost_ranks(RunFolder(tmp_path)):
        raise RuntimeError(words)
    assert words.split(" This is")[0] in str(caught.value)
    assert "typically" not in str(caught.value)


def test_the_last_whole_checkpoint_is_named(config, run):
    """Where the run has saved, the message says what is left."""
    folder, _ = run(config)
    with pytest.raises(RankLost, match=r"the last whole checkpoint is .*step-00000008"), telling_lost_ranks(folder):
        raise RuntimeError(GLOO)


def test_any_other_error_passes(tmp_path):
    """A wrong shape is no lost rank."""
    with pytest.raises(RuntimeError, match="shape") as caught, telling_lost_ranks(RunFolder(tmp_path)):
        raise RuntimeError("shape '[2]' is invalid for input of size 3")
    assert type(caught.value) is RuntimeError
