"""The loader beside that of public tutorials: tokens a second from the page cache and from disk, memory, seeking.

    python bench/loader.py [--tokens 1e9] [--folder /tmp]

Makes a file of random uint16 ids (2 GB for 1e9), reads batches of 64 x 1,024 windows out of it, and deletes it. "CPU"
is tokens over the CPU seconds of the thread that reads, which holds on a busy machine; "wall" is over seconds. Each
case takes its turn in every repeat, and its best repeat counts. The baseline is nanoGPT's `get_batch` (a memory map
opened anew for each batch, two slices and two casts a row). "Bare" reads are 64 system calls at random places into one
buffer and a cast of it into two tensors that stay: what this machine's memory and kernel leave a loader at best, which
changes by half with what else the host does; hence the line. "Read ahead" is what takes batches and does nothing else:
two threads that wait for each other.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from torchledger.meter import keep_heap
from torchledger.trainer.batches import Batches
from torchledger.trainer.loader import WeightedFile
from torchledger.trainer.resident import resident_bytes
from torchledger.trainer.tokenfile import TokenFile
from torchledger.trainer.tokenwriter import TokenFileWriter

BATCH, LENGTH = 64, 1024
VOCAB_SIZE, END_OF_TEXT, DOCUMENT = 50_257, 50_256, 1000
WARM_BATCHES, REPEATS, LONG, COLD_BATCHES = 60, 25, 1500, 40
TOKENS = BATCH * LENGTH


def make(path: Path, num_tokens: int) -> TokenFile:
    """Random ids in documents of 1,000 tokens."""
    rng = np.random.default_rng(0)
    with TokenFileWriter(path, vocab_size=VOCAB_SIZE, end_of_text_id=END_OF_TEXT, tokenizer_hash="none") as out:
        for _ in range(num_tokens // DOCUMENT):
            out.write(rng.integers(0, END_OF_TEXT, DOCUMENT, np.uint16))
            out.end_document()
    return TokenFile.open(path)


def tutorial(token_file: TokenFile) -> Callable[[int], object]:
    """`get_batch` of nanoGPT's train.py."""

    def get_batch(_: int) -> object:
        data = np.memmap(token_file.path, np.uint16, "r", token_file.payload_start, (token_file.num_tokens,))
        ix = torch.randint(len(data) - LENGTH, (BATCH,)).tolist()
        x = torch.stack([torch.from_numpy(data[i : i + LENGTH].astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in ix])
        return x, y

    return get_batch


def bare(token_file: TokenFile) -> Callable[[int], object]:
    """Reads as many bytes with as many calls, without order, check, new memory or anything else."""
    fd, rng = os.open(token_file.path, os.O_RDONLY), np.random.default_rng(0)
    buffer, values = np.empty((BATCH, LENGTH + 1), np.uint16), torch.empty(2, BATCH, LENGTH, dtype=torch.int64).numpy()
    rows = [(memoryview(row).cast("B"),) for row in buffer]
    last = token_file.num_tokens // LENGTH - 1

    def read(_: int) -> object:
        for row, window in zip(rows, rng.integers(0, last, BATCH).tolist(), strict=True):
            os.preadv(fd, row, token_file.payload_start + 2 * LENGTH * window)
        values[0], values[1] = buffer[:, :-1], buffer[:, 1:]
        return values

    return read


def rates(cases: dict[str, Callable[[int], object]], batches: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Mtok/s of each case's best repeat, by the thread's CPU seconds and by the clock."""
    cpu: dict[str, list[float]] = {name: [] for name in cases}
    wall: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats):
        for name, read in cases.items():
            begin, begin_wall = time.thread_time(), time.perf_counter()
            for n in range(repeat * batches, (repeat + 1) * batches):
                read(n)
            cpu[name].append(time.thread_time() - begin)
            wall[name].append(time.perf_counter() - begin_wall)
    tokens = batches * TOKENS / 1e6
    return {name: (tokens / min(cpu[name]), tokens / min(wall[name])) for name in cases}


def rate(read: Callable[[int], object], batches: int) -> float:
    """Mtok/s of one go by the clock."""
    return rates({"it": read}, batches, 1)["it"][1]


def evict(path: Path) -> None:
    """Drop the file's pages from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def measure(token_file: TokenFile) -> None:
    """Print the table."""
    evict(token_file.path)
    for _ in token_file.chunks():  # into the page cache as a read puts it there: pages that are written a piece at a
        pass  # time lie there one by one, and are found more slowly (1.3 times here, the bare reads as well)
    keep_heap()  # as `torchledger train` does
    halves = [WeightedFile(token_file.part(0, token_file.num_tokens // 2), 3), WeightedFile(token_file, 1)]
    print(f"{'from the page cache':44}{'CPU Mtok/s':>12}{'wall Mtok/s':>13}")
    with (
        Batches(token_file, BATCH, LENGTH, 0) as one,
        Batches(halves, BATCH, LENGTH, 1) as mixture,
        Batches(token_file, BATCH, LENGTH, 2, documents=True) as documents,
    ):
        cases = {"one file": one.batch, "mixture of two": mixture.batch, "with documents": documents.batch}
        cases |= {"bare reads": bare(token_file), "nanoGPT get_batch": tutorial(token_file)}
        for name, (cpu, wall) in rates(cases, WARM_BATCHES, REPEATS).items():
            print(f"{name:44}{cpu:12.0f}{wall:13.0f}")
    with Batches(token_file, BATCH, LENGTH, 3) as batches:
        next(batches)
        before = resident_bytes()
        print(f"{'one file, read ahead':44}{'':12}{rate(lambda _: next(batches), LONG):13.0f}")
        grown = (resident_bytes() - before) / 2**20
    print(f"resident memory grew by {grown:.1f} MiB over {LONG:,} batches")
    begin = time.perf_counter()
    with Batches(token_file, BATCH, LENGTH, 0, start=10**9) as batches:
        next(batches)
    print(f"batch 1,000,000,000 after {1e3 * (time.perf_counter() - begin):.1f} ms")
    evict(token_file.path)
    with Batches(token_file, BATCH, LENGTH, 1) as batches:
        cold = rate(batches.batch, COLD_BATCHES)
    evict(token_file.path)
    print(f"from disk: {cold:.1f} Mtok/s; nanoGPT {rate(tutorial(token_file), COLD_BATCHES):.1f}")


def main() -> None:
    """Make the file, measure, delete it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=1e9)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(make(Path(folder) / "ids.tokens", int(options.tokens)))


if __name__ == "__main__":
    main()
