"""Planted faults are found and named, each where it is; what repeats raises nothing."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

from torchledger.auditor import AuditError, Subject
from torchledger.auditor.determinism import audit_determinism
from torchledger.auditor.determinism_data import InOrder


class Model(nn.Module):
    """Two linear layers and something between them."""

    def __init__(self, between=None):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)
        self.between = between or nn.Tanh()

    def forward(self, x):
        """The loss."""
        return self.second(self.between(self.first(x))).square().mean()


def subject(make=Model, *, batches=None, optimizer=torch.optim.AdamW):
    """A subject that is made anew from a seed, its data too."""

    def rebuild(seed):
        torch.manual_seed(seed)
        model = make()
        data = batches() if batches else (lambda n: torch.randn(5, 6, generator=torch.Generator().manual_seed(n)))
        return Subject(
            "planted", model, data(0), optimizer=optimizer(model.parameters()), batches=data, rebuild=rebuild
        )

    return rebuild(3)


def harms(record):
    return [each for each in record.findings if each.severity != "note"]


def the_error(record):
    (found,) = [each for each in record.findings if each.severity == "error"]
    return found


def test_a_sound_model_raises_nothing_and_its_operations_are_counted():
    """Two linear layers under AdamW repeat bit for bit, and every run beside the first says so."""
    record = audit_determinism(subject())
    assert record.findings == ()
    assert record.is_clean
    assert all(row["same"] for row in record.tables["repeats"])
    assert [row["trial"] for row in record.tables["data"]] == ["again", "rebuilt", "after other draws", "another seed"]
    assert record.facts["num_steps"] == len(record.tables["losses"]) == 2
    assert record.facts["seed"] == {"torch": "1337", "numpy": "1337", "python": "1337"}


class Scattered(torch.autograd.Function):
    """Adds rows in an order that nobody fixes, as atomic additions on a GPU do."""

    @staticmethod
    def forward(_, x):
        """As it is."""
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        """In a drawn order."""
        return torch.ops.planted.scattered(gradient, 1e4)


@torch.library.custom_op("planted::scattered", mutates_args=())
def scattered(gradient: torch.Tensor, size: float) -> torch.Tensor:
    """Each element plus large terms that cancel, added in a drawn order: a float sum that depends on it."""
    total = gradient.clone()
    terms = [torch.full_like(gradient, sign * size * k) for k in (1.0, 1.7, 3.1) for sign in (1, -1)]
    random.SystemRandom().shuffle(terms)
    for term in terms:
        total += term
    return total


class ScatteredLayer(nn.Module):
    def forward(self, x):
        """As it is."""
        return Scattered.apply(x)


def test_sums_in_a_random_order_are_named_with_operation_module_phase_and_size():
    """A backward pass that adds in another order each time is the first to differ, and by how much is told."""
    torch.manual_seed(0)
    record = audit_determinism(subject(lambda: Model(ScatteredLayer())), repeats=4)
    found = the_error(record)
    assert found.evidence["operation"] == "planted.scattered.default"
    assert (found.evidence["module"], found.evidence["phase"]) == ("between", "backward")
    assert found.place.startswith("between at auditor/test_determinism.py:")
    assert "of equal values it makes other results" in found.message
    assert 0 < found.evidence["num_different"] <= found.evidence["num_elements"] == 5 * 8
    # Terms up to 31,000 are added: their unit in the last place is 2**-9.
    assert 0 < found.evidence["largest"] <= 6 * 2**-9


class Noise(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        """With noise."""
        return x + self.draw(x)


UNSEEDED = np.random.default_rng()


def test_numpy_noise_without_a_seed_is_data_that_torch_did_not_make():
    """A generator of NumPy that nobody seeds gives the forward pass other values; where they enter is named."""
    noise = lambda x: torch.from_numpy(UNSEEDED.normal(size=tuple(x.shape)).astype("float32"))  # noqa: E731
    found = the_error(audit_determinism(subject(lambda: Model(Noise(noise)))))
    assert "torch.from_numpy or torch.tensor (forward) is the first" in found.message
    assert "it is given other values, though every operation before it made the same" in found.message
    assert (found.evidence["module"], found.evidence["operation"]) == ("between", "aten.lift_fresh.default")
    assert found.evidence["num_different"] == 5 * 8


def test_numpys_global_stream_in_forward_is_told_though_the_audit_seeds_it():
    """np.random in a forward pass repeats only because the audit seeded NumPy too: a warning, at its line."""
    noise = lambda x: torch.from_numpy(np.random.normal(size=tuple(x.shape)).astype("float32"))  # noqa: E731, NPY002
    (found,) = harms(audit_determinism(subject(lambda: Model(Noise(noise)))))
    assert found.severity == "warning"
    assert "with another seed for NumPy" in found.message
    assert found.evidence["module"] == "between"


def test_pythons_random_in_forward_is_told_with_the_numbers():
    """random.random() as a factor is an argument that another seed changes; unseeded, an error that tells both."""
    (found,) = harms(audit_determinism(subject(lambda: Model(Noise(lambda x: x * random.random())))))
    assert (found.severity, found.evidence["operation"]) == ("warning", "aten.mul.Tensor")
    system = random.SystemRandom()
    found = the_error(audit_determinism(subject(lambda: Model(Noise(lambda x: x * system.random())))))
    assert "it is called with (" in found.message


def test_an_unseeded_generator_of_torch_is_named_as_one_that_draws():
    """A draw from a generator that is seeded by the clock differs though its inputs are equal, and is known to draw."""
    own = torch.Generator()

    def draw(x):
        own.seed()
        return torch.empty_like(x).normal_(generator=own)

    found = the_error(audit_determinism(subject(lambda: Model(Noise(draw)))))
    assert "it draws other numbers" in found.message
    assert found.evidence["operation"] == "aten.normal_.default"


def test_dropout_is_a_note_with_its_module():
    """Dropout draws from torch's stream: worth knowing, no harm, for the seed repeats it."""
    record = audit_determinism(subject(lambda: Model(nn.Dropout(0.5))))
    (found,) = record.findings
    assert (found.severity, found.place) == ("note", "between")
    assert record.facts["num_random_operations"] == 2  # one in each of two steps


class OrderOfASet(nn.Module):
    """Adds layers in the order of a set of objects, which is that of their addresses."""

    def __init__(self):
        super().__init__()
        self.turn = 0
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x):
        """One layer after another."""
        order = list(self.layers)
        random.SystemRandom().shuffle(order)  # what a set does from one process to the next
        for layer in order:
            x = layer(x).tanh()
        return x


def test_another_order_of_modules_is_named_as_such():
    """Where a set's order decides which layer runs, both modules are told."""
    found = the_error(audit_determinism(subject(lambda: Model(OrderOfASet())), repeats=5))
    assert "between.layers." in found.message
    assert "once aten" in found.message


class Unwritten(nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write

    def forward(self, x):
        """With memory of which a part is written."""
        memory = torch.empty_like(x)
        memory[:, : self.write] = x[:, : self.write]
        return x + memory


def test_unwritten_memory_that_reaches_the_loss_is_an_error_and_written_memory_is_none():
    """torch.empty of which a part is read unwritten changes the loss when it is filled; wholly written it does not."""
    found = the_error(audit_determinism(subject(lambda: Model(Unwritten(5)))))
    assert "memory is read that nobody wrote" in found.message
    assert found.evidence["module"] == "between"
    assert audit_determinism(subject(lambda: Model(Unwritten(8)))).findings == ()


def test_the_unwritten_part_may_hold_anything_where_it_is_never_used():
    """Memory that is read and thrown away is no fault."""

    class Masked(nn.Module):
        def forward(self, x):
            return torch.where(x > x + 1, torch.empty_like(x), x)

    assert harms(audit_determinism(subject(lambda: Model(Masked())))) == []


def rows():
    return TensorDataset(torch.arange(40 * 6).view(40, 6).float() / 100)


def from_loader(**options):
    """Batches of a loader, its single tensor taken out of the list."""

    def make():
        order = InOrder(DataLoader(rows(), batch_size=5, **(options["make"]() if "make" in options else options)))
        taken = lambda n: order(n)[0]  # noqa: E731
        taken.loader = order.loader
        return taken

    return make


def test_a_shuffling_loader_without_a_generator_hangs_on_every_other_draw():
    """DataLoader(shuffle=True) takes its order from torch's global stream: a warning that names loader and stream."""
    record = audit_determinism(subject(batches=from_loader(shuffle=True)))
    found = harms(record)
    assert [each.severity for each in found] == ["warning"]
    assert found[0].place == "DataLoader(TensorDataset) with RandomSampler, no generator of its own, 0 workers"
    assert found[0].evidence["streams"] == ("torch",)


def test_a_loader_whose_generator_nobody_seeds_is_an_error():
    """A generator seeded by the clock gives another order each time: named as not seeded."""

    def options():
        generator = torch.Generator()
        generator.seed()
        return {"shuffle": True, "generator": generator}

    found = the_error(audit_determinism(subject(batches=from_loader(make=options))))
    assert "the order is not seeded" in found.message


def test_a_seeded_loader_raises_nothing():
    """With a generator of its own, seeded, the order is the same whatever else draws."""
    options = lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(5)}  # noqa: E731
    assert audit_determinism(subject(batches=from_loader(make=options))).findings == ()


class Stream(IterableDataset):
    """Every worker gives all of it, where it does not look which one it is."""

    def __iter__(self):
        info = get_worker_info()
        start = 0 if info is None else 100 * info.id
        return (torch.full((6,), float(start + n)) for n in range(40))


def test_data_that_hangs_on_the_number_of_workers_is_a_warning():
    """An iterable data set whose workers give other samples is told with their number."""

    def batches():
        return InOrder(DataLoader(Stream(), batch_size=5, num_workers=2))

    (found,) = harms(audit_determinism(subject(batches=batches)))
    assert found.evidence["num_workers"] == 2
    assert found.evidence["first_batch"] == 1


def test_weights_from_numpys_global_stream_are_told_by_name():
    """A model that draws a weight with np.random begins alike only where NumPy is seeded too."""

    class Drawn(Model):
        def __init__(self):
            super().__init__()
            with torch.no_grad():
                self.second.weight.copy_(torch.from_numpy(np.random.normal(size=(4, 8))))  # noqa: NPY002

    (found,) = harms(audit_determinism(subject(Drawn)))
    assert (found.severity, found.place) == ("warning", "second.weight")
    assert "NumPy" in found.message


def test_weights_that_nobody_seeds_are_an_error_by_name():
    """Drawn from an unseeded generator, the parameter begins with other values each time."""

    class Drawn(Model):
        def __init__(self):
            super().__init__()
            with torch.no_grad():
                self.second.weight.copy_(torch.from_numpy(UNSEEDED.normal(size=(4, 8))))

    found = the_error(audit_determinism(subject(Drawn)))
    assert found.place == "second.weight"
    assert "begins with other values" in found.message


def test_documented_cases_are_notes_even_where_they_repeated():
    """index_add is documented for CUDA: listed for it with its module, not for the CPU."""

    class Adds(nn.Module):
        def forward(self, x):
            return torch.zeros_like(x).index_add(0, torch.tensor([0, 0, 1, 2, 3]), x)

    made = subject(lambda: Model(Adds()))
    (found,) = audit_determinism(made, target="cuda").findings
    assert found.severity == "note"
    assert "known not to repeat on cuda: index_add" in found.message
    assert found.evidence["modules"] == ("between",)
    assert audit_determinism(made).findings == ()


def test_a_run_of_another_process_is_compared_too():
    """A run whose last operations are others is an error that says where it ran."""
    from torchledger.auditor.determinism import run_once
    from torchledger.auditor.determinism_run import Run

    made = subject()
    told = run_once(made).told()
    assert audit_determinism(made, elsewhere={"in another process": Run.of(told)}).findings == ()
    told["seen"][7][6] = [1]
    found = the_error(audit_determinism(made, elsewhere={"in another process": Run.of(told)}))
    assert found.message.startswith("in another process, ")
    assert found.evidence["number"] == 7


def test_a_subject_that_cannot_be_made_anew_is_repeated_from_its_state():
    """Without rebuild and batches the state is restored, and the record says what was not audited."""
    record = audit_determinism(replace(subject(), rebuild=None, batches=None))
    assert record.findings == ()
    assert record.tables["data"] == ()
    assert any("not made anew" in each for each in record.assumptions)


def test_what_cannot_be_audited_says_why():
    """A step that fails, a loss that trains nothing and no steps are errors of the user's, in one sentence."""
    with pytest.raises(AuditError, match=r"a step of planted fails in first: RuntimeError: mat1 and mat2"):
        audit_determinism(replace(subject(), batches=None, batch=torch.zeros(2, 5)))
    frozen = subject()
    frozen.model.requires_grad_(requires_grad=False)
    with pytest.raises(AuditError, match="nothing of planted is trained"):
        audit_determinism(frozen)
    with pytest.raises(AuditError, match="at least 1 step and 2 runs"):
        audit_determinism(subject(), steps=0)


def test_unwritten_memory_that_reaches_gradients_alone_is_an_error_too():
    """The loss of a single step is the same, its weights are not: memory read unwritten in the backward pass."""

    class Leaks(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.clone()

        @staticmethod
        def backward(_, gradient):
            return gradient + torch.empty_like(gradient)

    class Layer(nn.Module):
        def forward(self, x):
            return Leaks.apply(x)

    found = the_error(audit_determinism(subject(lambda: Model(Layer())), steps=1))
    assert "memory is read that nobody wrote" in found.message
    assert found.evidence["phase"] == "backward"
    alone = replace(subject(lambda: Model(Layer())), optimizer=None, rebuild=None)
    found = the_error(audit_determinism(alone, steps=1))
    assert found.evidence["phase"] == "backward"
