import gc
import itertools
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.batches import Batches, ValidationBatches, WeightedFile, num_windows
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenwriter import TokenFileWriter

NUM_TOKENS = 1003  # with T = 8: (1003 - 1) div 8 = 125 windows and two tokens left over


def write(path, ids, vocab_size=NUM_TOKENS):
    with TokenFileWriter(path, vocab_size=vocab_size, end_of_text_id=None, tokenizer_hash="hash") as out:
        out.write(ids)
    return TokenFile.open(path)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory):
    """Token i of the file is i, so that a batch shows where it was read."""
    return write(tmp_path_factory.mktemp("b") / "x.tokens", range(NUM_TOKENS))


def first_inputs(batch):
    return (batch[0][:, 0] // 8).tolist()


def stream_of(batches):
    return list(itertools.chain.from_iterable(first_inputs(batch) for batch in batches))


def descriptors():
    """Open files of this process, where the system tells."""
    gc.collect()  # what earlier tests left is not counted
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else None


def prefetching():
    return [thread for thread in threading.enumerate() if thread.name == "torchledger-prefetch"]


@pytest.mark.parametrize(
    ("tokens", "sequence_length", "expected"), [(9, 8, 1), (16, 8, 1), (17, 8, 2), (NUM_TOKENS, 8, 125), (2, 1, 1)]
)
def test_number_of_windows(tmp_path, tokens, sequence_length, expected):
    """Each window takes T tokens, and the last one a token more for its target."""
    assert num_windows(write(tmp_path / "x", range(tokens)), sequence_length) == expected


@pytest.mark.parametrize("tokens", [0, 1, 8])
def test_too_few_tokens(tmp_path, tokens):
    """A file shorter than one window says what it has, what it takes, and what to do."""
    message = rf"has {tokens} tokens, too few for one window of 8 and its last target \(9\)"
    with pytest.raises(TokenFileError, match=message):
        Batches(write(tmp_path / "x", range(tokens)), 1, 8, 0)


def test_targets_are_the_next_tokens(token_file):
    """Inputs and targets are int64 [B, T], contiguous, and each target is the input one token later."""
    with Batches(token_file, 4, 8, seed=1) as batches:
        x, y = batches.batch(3)
    assert x.shape == y.shape == (4, 8)
    assert x.dtype == y.dtype == torch.int64
    assert x.is_contiguous()
    assert y.is_contiguous()
    assert torch.equal(y, x + 1)
    assert (x[:, 0] % 8 == 0).all()


def test_an_epoch_has_every_window_once(token_file):
    """25 batches of 5 are 125 windows: each once, in an order that the next epoch does not repeat."""
    with Batches(token_file, 5, 8, seed=0) as batches:
        epochs = [stream_of(batches.batch(25 * e + n) for n in range(25)) for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(125))
    assert epochs[0] != epochs[1]


def test_a_batch_may_straddle_epochs(token_file):
    """The 16th batch of 8 holds the last five windows of the first epoch and three of the second."""
    with Batches(token_file, 8, 8, seed=0) as batches:
        stream = stream_of(batches.batch(n) for n in range(32))
    assert sorted(stream[:125]) == sorted(stream[125:250]) == list(range(125))


@given(st.integers(0, 200), st.integers(1, 7), st.integers(0, 3))
def test_resumed_stream_is_the_uninterrupted_one(token_file, stop, batch_size, seed):
    """A stream started at the position where another stopped gives what the other would have given, across epochs."""
    with Batches(token_file, batch_size, 8, seed, start=stop) as first:
        next(first)
        assert first.position == stop + 1
        with Batches(token_file, batch_size, 8, seed, start=first.position) as resumed:
            for _ in range(4):
                for a, b in zip(next(first), next(resumed), strict=True):
                    assert torch.equal(a, b)


def test_iteration_and_batch_agree(token_file):
    """The n-th iteration is batch n, whatever is asked in between; asking moves nothing."""
    with Batches(token_file, 4, 8, seed=3) as batches, Batches(token_file, 4, 8, seed=3) as other:
        for n, (x, y) in zip(range(40), batches, strict=False):
            other.batch(97 - n)
            batches.batch(5)
            assert torch.equal(x, other.batch(n)[0])
            assert torch.equal(y, other.batch(n)[1])
        assert batches.position == 40
        assert other.position == 0


def test_batches_are_kept(token_file):
    """A batch held while others are read keeps its values, though they are read into one buffer."""
    with Batches(token_file, 4, 8, seed=0) as batches:
        x, _ = batches.batch(0)
        copy = x.clone()
        batches.batch(1)
        next(batches)
        assert torch.equal(x, copy)


def test_no_random_state_is_touched(token_file):
    """Neither torch's nor NumPy's generator moves, so data never changes dropout."""
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002  the global one is meant
    with Batches(token_file, 4, 8, seed=0) as batches:
        next(batches)
        list(ValidationBatches(token_file, 4, 8))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_seed_chooses_the_order(token_file):
    """Another seed gives other batches."""
    with Batches(token_file, 8, 8, seed=0) as one, Batches(token_file, 8, 8, seed=1) as other:
        assert first_inputs(one.batch(0)) != first_inputs(other.batch(0))


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_ranks_share_each_batch(token_file, world_size):
    """The ranks' rows put together are the batch of a single process."""
    with Batches(token_file, 6, 8, seed=0) as whole:
        shares = []
        for rank in range(world_size):
            with Batches(token_file, 6, 8, seed=0, rank=rank, world_size=world_size) as share:
                shares.append(share.batch(30)[0])
        assert torch.equal(torch.cat(shares), whole.batch(30)[0])


def test_uneven_ranks_are_refused(token_file):
    """A batch that the ranks cannot share evenly is refused."""
    with pytest.raises(TokenFileError, match="4 ranks cannot share a batch of 6"):
        Batches(token_file, 6, 8, 0, world_size=4)


def test_epochs(token_file):
    """50 batches of 5 pass over 125 windows twice."""
    with Batches(token_file, 5, 8, 0) as batches:
        assert batches.epochs(50) == 2
        assert batches.epochs(1) == 5 / 125


def test_waiting_is_counted(token_file):
    """The time that iteration waits adds up, and asking for a batch by number is no wait of the stream."""
    with Batches(token_file, 4, 8, 0) as batches:
        batches.batch(0)
        assert batches.data_wait_s == 0
        next(batches)
        first = batches.data_wait_s
        next(batches)
        assert 0 < first < batches.data_wait_s


@pytest.mark.parametrize(("batch_size", "start"), [(0, 0), (-1, 0), (1, -1)])
def test_senseless_sizes_are_refused(token_file, batch_size, start):
    """No batch has fewer than one window, and none comes before the first."""
    with pytest.raises(TokenFileError, match="at least"):
        Batches(token_file, batch_size, 8, 0, start)


def test_sequence_length_and_number_are_checked(token_file):
    """A sequence of no tokens and a batch before the first are refused."""
    with pytest.raises(TokenFileError, match="sequence length of 0"):
        Batches(token_file, 1, 0, 0)
    with Batches(token_file, 1, 8, 0) as batches, pytest.raises(TokenFileError, match="no batch -1"):
        batches.batch(-1)


def test_damage_stops_iteration_with_its_place(tmp_path):
    """An id beyond the vocabulary met in the background is raised where the batch is asked for."""
    token_file = write(tmp_path / "x", range(100), vocab_size=100)
    with token_file.path.open("r+b") as stream:
        stream.seek(token_file.payload_start + 33 * 2)
        stream.write((500).to_bytes(2, "little"))
    with Batches(token_file, 12, 8, 0) as batches, pytest.raises(TokenFileError, match="token id 500 at position 33"):
        next(batches)
    assert prefetching() == []


def test_closing_leaves_nothing(token_file):
    """Closed batches leave no thread and no open file, say so when asked for more, and may be closed again."""
    before = descriptors()
    batches = Batches(token_file.path, 4, 8, 0)
    batches.batch(1)
    next(batches)
    batches.close()
    batches.close()
    assert batches.position == 1
    assert prefetching() == []
    assert descriptors() == before
    for ask in (lambda: next(batches), lambda: batches.batch(0)):
        with pytest.raises(TokenFileError, match="are closed"):
            ask()


def test_abandoned_batches_are_collected(token_file):
    """Batches dropped in the middle of iteration end their thread and close their file by themselves."""
    before = descriptors()
    batches = Batches(token_file, 4, 8, 0)
    next(batches)
    del batches
    gc.collect()
    assert prefetching() == []
    assert descriptors() == before


def test_validation_is_sequential_and_whole(token_file):
    """Validation walks through all 125 windows in order, the last batch being smaller, the same every time."""
    validation = ValidationBatches(token_file, 50, 8)
    runs = [[first_inputs(batch) for batch in validation] for _ in range(2)]
    assert runs[0] == runs[1] == [list(range(50)), list(range(50, 100)), list(range(100, 125))]
    assert len(validation) == 3
    assert validation.num_tokens == 125 * 8


def test_validation_of_a_part(token_file):
    """A limit takes the first batches only; a batch larger than the file takes the file."""
    part = ValidationBatches(token_file, 10, 8, max_batches=2)
    assert stream_of(part) == list(range(20))
    assert (len(part), part.num_tokens) == (2, 160)
    assert [len(x) for x, _ in ValidationBatches(token_file, 1000, 8)] == [125]


def test_validation_refuses_senseless_sizes(token_file):
    """Validation takes at least one window and one batch."""
    for sizes in ({"batch_size": 0}, {"batch_size": 1, "max_batches": 0}):
        with pytest.raises(TokenFileError, match="at least 1"):
            ValidationBatches(token_file, sequence_length=8, **sizes)


@pytest.fixture(scope="module")
def three_files(tmp_path_factory):
    """10, 20 and 40 windows of 8; token i of file f is 1000·f + i. Documents have 5 tokens."""
    folder, files = tmp_path_factory.mktemp("m"), []
    for number, windows in enumerate((10, 20, 40)):
        path = folder / f"{number}.tokens"
        with TokenFileWriter(path, vocab_size=3000, end_of_text_id=None, tokenizer_hash="hash") as out:
            for first in range(0, 8 * windows + 1, 5):
                out.write(range(1000 * number + first, 1000 * number + min(first + 5, 8 * windows + 1)))
                out.end_document()
        files.append(TokenFile.open(path))
    return files


def mixed(files, weights=(3, 2, 1)):
    return [WeightedFile(file, weight) for file, weight in zip(files, weights, strict=True)]


def test_a_mixture_draws_by_weight_and_each_file_has_its_own_epochs(three_files):
    """Weights 3:2:1 over 240 samples are 120, 80 and 40: twelve, four and one epoch, every window once in each."""
    with Batches(mixed(three_files), 6, 8, seed=0) as batches:
        stream = [first for n in range(40) for first in batches.batch(n)[0][:, 0].tolist()]
    for number, (drawn, windows) in enumerate(((120, 10), (80, 20), (40, 40))):
        own = [(first - 1000 * number) // 8 for first in stream if first // 1000 == number]
        assert len(own) == drawn
        for epoch in range(0, drawn, windows):
            assert sorted(own[epoch : epoch + windows]) == list(range(windows))
    assert batches.epochs(40) == pytest.approx(12)  # of the file that is repeated most


@given(st.integers(0, 10**9), st.integers(1, 3), st.integers(0, 3))
def test_a_mixture_is_resumed_and_shared_like_one_file(three_files, start, world_size, seed):
    """Anywhere in a mixture a stream goes on as the uninterrupted one, and ranks share each batch."""
    with Batches(mixed(three_files), 6, 8, seed, start, documents=True) as batches:
        found = [next(batches) for _ in range(2)]
    with Batches(mixed(three_files), 6, 8, seed, documents=True) as whole:
        for n, batch in enumerate(found, start):
            assert all(map(torch.equal, batch, whole.batch(n)))
    for rank in range(world_size):
        rows = slice(rank * 6 // world_size, (rank + 1) * 6 // world_size)
        with Batches(mixed(three_files), 6, 8, seed, rank=rank, world_size=world_size) as share:
            assert torch.equal(share.batch(start)[0], found[0][0][rows])


def test_one_file_is_the_stream_without_a_mixture(three_files):
    """A mixture of one file, whatever its weight, has the batches of that file."""
    with Batches(mixed(three_files[:1], [7]), 4, 8, 0) as one, Batches(three_files[0], 4, 8, 0) as plain:
        assert torch.equal(one.batch(11)[0], plain.batch(11)[0])


@pytest.mark.parametrize("weights", [(0, 1, 1), (1, -1, 1), (1, 1, float("inf")), (1, 1, float("nan"))])
def test_weights_that_are_none_are_refused(three_files, weights):
    """A weight of nothing, below it, or without end draws no sequence."""
    with pytest.raises(TokenFileError, match="weight above 0"):
        Batches(mixed(three_files, weights), 4, 8, 0)


@pytest.mark.parametrize("world_size", [1, 2])
def test_pairs_within_documents_are_counted_over_all_ranks(three_files, world_size):
    """The sum of squared lengths is that of the document numbers of all ranks' rows, and the full count without."""
    total = 0
    for rank in range(world_size):
        with Batches(mixed(three_files), 6, 8, 0, rank=rank, world_size=world_size, documents=True) as batches:
            _, _, numbers = batches.batch(3)
            total += int((numbers[:, :, None] == numbers[:, None, :]).sum())
            counted = batches.squared_lengths(3)
    assert counted == total < 6 * 8 * 8
    with Batches(mixed(three_files), 6, 8, 0) as batches:
        assert batches.squared_lengths(3) == 6 * 8 * 8


def test_validation_has_documents_too(three_files):
    """Documents of 5 tokens in windows of 8: five, three; two, five, one; ..."""
    (_, _, numbers), *_ = ValidationBatches(three_files[0], 2, 8, documents=True)
    assert numbers.tolist() == [[0] * 5 + [1] * 3, [0] * 2 + [1] * 5 + [2]]


def test_seeking_takes_no_time(three_files):
    """Batch 10**12 takes less than 0.1 s of CPU time: nothing is skipped on the way."""
    with Batches(mixed(three_files), 6, 8, 0) as batches:
        begin = time.thread_time()
        batches.batch(10**12)
        assert time.thread_time() - begin < 0.1


@pytest.mark.device
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gets_the_same_values(token_file):
    """On CUDA the tensors arrive on the device with the values of the CPU's, also when many copies are under way."""
    with Batches(token_file, 4, 8, 0, device="cuda") as there, Batches(token_file, 4, 8, 0) as here:
        for n in range(100):
            x, y = next(there)
            assert x.is_cuda
            assert torch.equal(x.cpu(), here.batch(n)[0])
            assert torch.equal(y.cpu(), here.batch(n)[1])
