"""Threads that have nothing to do with a trace go on as they would without one."""

import threading

import torch
from torch import nn

from torchledger.tracer import trace
from torchledger.tracer.threads import is_elsewhere

LAYERS, WIDTH, ROWS = 6, 4, 2


def _loss(output, _batch):
    return output.square().mean()


def _model():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])


def test_a_thread_without_modes_is_elsewhere():
    found = []
    other = threading.Thread(target=lambda: found.append(is_elsewhere(threading.main_thread().ident)))
    other.start()
    other.join()
    assert found == [True]
    assert not is_elsewhere(threading.get_ident())


def test_threads_trace_one_after_the_other():
    """Four at once, for both targets: each gets the answer that it gets alone."""
    alone = {target: trace(_model(), torch.zeros(ROWS, WIDTH), loss=_loss, target=target) for target in ("cpu", "cuda")}
    found = []

    def one(target):
        seen = trace(_model(), torch.zeros(ROWS, WIDTH), loss=_loss, target=target)
        found.append((target, seen.model_flops, seen.peak().peak_bytes))

    threads = [threading.Thread(target=one, args=(target,)) for target in ("cpu", "cuda") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(
        (target, seen.model_flops, seen.peak().peak_bytes) for target, seen in alone.items() for _ in range(2)
    )


def test_another_thread_trains_meanwhile():
    """Its modules, optimizer and backward passes are in no trace, and its weights stay real."""
    model, batch = nn.Linear(WIDTH, WIDTH), torch.ones(ROWS, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    failures, is_over = [], threading.Event()

    def train():
        while not is_over.is_set():
            try:
                _loss(model(batch), batch).backward()
                optimizer.step()
                optimizer.zero_grad()
            except Exception as error:  # noqa: BLE001  # told below
                failures.append(error)
                return

    alone = trace(_model(), batch, loss=_loss, optimizer=torch.optim.SGD)
    other = threading.Thread(target=train)
    other.start()
    try:
        seen = [trace(_model(), batch, loss=_loss, optimizer=torch.optim.SGD) for _ in range(3)]
    finally:
        is_over.set()
        other.join()
    assert not failures
    assert type(model.weight.data) is torch.Tensor
    for each in seen:
        assert (each.num_parameters, each.model_flops) == (alone.num_parameters, alone.model_flops)
        assert each.peak().peak_bytes == alone.peak().peak_bytes
