"""Loss and cycles of policies, and the settings of the report. All of them are cached."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

import torch
from amaranth.hdl import Fragment

from halfulp import golden
from halfulp.tools.cache import Entry, cached
from halfulp.tools.digests import code, digest, source, version
from halfulp.tools.jobs import Job, JobPool
from halfulp.tools.progress import Progress
from halfulp.tools.threads import threads

from .arithmetic import Arithmetic
from .engine import Engine
from .model import TEXT, Decoder, Shape, characters, load, save
from .simulation import Simulation
from .train import contexts, train

FILES = ("arithmetic", "engine", "losses", "model", "program", "simulation", "train")
"""Modules of this folder that decide losses and cycles."""


@dataclass(frozen=True)
class Settings:
    """Settings of the figures.

    Parameters
    ----------
    shape : Shape
    steps : int
        Training steps.
    lanes, pipeline : int
        Multiply-accumulates of the engine, and register stages of its units of elements.
    contexts : int
        Contexts of the text for the loss.
    """

    shape: Shape
    steps: int = 1000
    lanes: int = 8
    pipeline: int = 4
    contexts: int = 32

    @cached_property
    def model(self) -> Path:
        """File of the trained model."""

        def make(folder: Path) -> None:
            with threads(1):
                save(train(self.shape, steps=self.steps), folder / "decoder.pt")

        parts = (self.shape, self.steps, TEXT.read_text(), sources(("model", "train")), version("torch"))
        return cached("decoder", parts, make, name="model") / "decoder.pt"

    def engine(self, policy: Path) -> Engine:
        """Return the elaborated engine of a policy."""
        engine = Engine(self.shape, Arithmetic.read(policy, self.lanes), pipeline=self.pipeline)
        Fragment.get(engine, None)
        return engine


def full_size() -> Settings:
    """Return the settings of the record."""
    return Settings(Shape(vocabulary=len(characters())))


def sources(names: Iterable[str] = FILES) -> str:
    """Return a digest of modules of this folder."""
    return digest(*(source(Path(__file__).with_name(f"{name}.py")) for name in names))


@torch.no_grad()
def loss_of(model: Decoder, arithmetic: Arithmetic | None, rows: int) -> float:
    """Return the loss on the first contexts of the text, token by token as in the engine; None for torch's own FP32."""
    given, targets = (tokens[:rows] for tokens in contexts(model.shape))
    read, logits = model.reader(), []
    for position in range(given.shape[1]):
        column = given[:, position : position + 1]
        if arithmetic is None:
            logits.append(read(column, position))
            continue
        with golden.emulate(arithmetic.rules, strict=True):
            logits.append(read(column, position))
    return float(torch.nn.functional.cross_entropy(torch.cat(logits, dim=1).flatten(0, 1), targets.flatten()))


@threads(1)
def loss_job(model: Path, policy: Path | None, rows: int, lanes: int) -> float:
    """Return the loss of a saved model under a policy file."""
    return loss_of(load(model), None if policy is None else Arithmetic.read(policy, lanes), rows)


def cycles_job(model: Path, policy: Path, lanes: int, pipeline: int) -> list[int]:
    """Return the clock cycles of the engine for the token at each position of a context."""
    decoder = load(model)
    engine = Engine(decoder.shape, Arithmetic.read(policy, lanes), pipeline=pipeline)
    with Simulation(engine, decoder) as simulation:
        for position in range(decoder.shape.context):
            simulation.step(0, restart=position == 0)
        return simulation.cycles


def losses_and_cycles(
    settings: Settings, policies: list[Path], progress: Progress, pool: JobPool
) -> tuple[list[float], list[float]]:
    """Return the loss of each policy, with that of FP32 at the end, and the mean cycles for a token of a context."""
    model, lanes = settings.model, settings.lanes
    own = (model.parent.name, code("halfulp.golden", "halfulp.units"), sources(), version("torch"))
    wanted: list[tuple[Entry, Job]] = []
    for policy in [*policies, None]:
        loss = (model, policy, settings.contexts, lanes)
        jobs = [(loss_job, loss)]
        if policy is not None:
            jobs.append((cycles_job, (model, policy, lanes, settings.pipeline)))
        text = "fp32" if policy is None else policy.read_text()
        for function, arguments in jobs:
            entry = Entry.of("decoder", (function.__name__, text, *arguments[2:], *own))
            wanted.append((entry, Job(f"{function.__name__} of {policy or 'fp32'}", function, arguments)))
    progress.total("losses and simulations", len(wanted))
    results = pool.results(wanted, progress, here="process")
    values = {
        name: [results[entry] for entry, job in wanted if job.function is name] for name in (loss_job, cycles_job)
    }
    return values[loss_job], [fmean(cycles) for cycles in values[cycles_job]]
