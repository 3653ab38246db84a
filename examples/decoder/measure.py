"""Figures of the engine under a policy: loss, cycles, cost on an ECP5 and energy. All of them are cached."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

import torch
from amaranth.hdl import Fragment

from halfulp import golden
from halfulp.boards.targets import target_of
from halfulp.fpga.synth.asic import measure_cells
from halfulp.fpga.synth.liberty import Library
from halfulp.fpga.synth.measure import Cost, measure_modules
from halfulp.fpga.synth.measure import Module as Netlist
from halfulp.fpga.synth.registered import Registered
from halfulp.fpga.synth.route import frequencies
from halfulp.implementation import Implementation
from halfulp.tools.cache import Entry, cached
from halfulp.tools.digests import code, digest, source, version
from halfulp.tools.jobs import Job, JobPool
from halfulp.tools.progress import Progress
from halfulp.tools.threads import threads

from .arithmetic import Arithmetic
from .engine import Engine
from .model import TEXT, Decoder, Shape, characters, load, save
from .program import BINARY, REDUCTIONS, UNARY, Op
from .simulation import Simulation
from .train import contexts, train

TARGET = target_of("ecp5-85k")

FILES = ("arithmetic", "engine", "measure", "model", "program", "simulation", "train")
"""Modules of this folder that decide the figures."""

OPERANDS = {
    Op.RSQRT: ("function_x",),
    Op.EXP: ("exp_x",),
    Op.GELU: ("gelu_x",),
    Op.MEAN: (),
    Op.SUM: ("element_x",),
    Op.MAX: ("element_x",),
}
"""Units that round the operands of an operation; others have ``element_x`` and ``element_y``."""

NAMES = {Op.SUB: "add", Op.MAX: "compare"}
"""Units whose names are not those of their operations."""

_ZEROS = re.compile(r"^ *for \((\w+) = 0; \1 < \d+; \1 = \1 \+ 1\) \S+ ?\[\1\] = \d+'[dh]0+;\n", re.MULTILINE)


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


# Loss and cycles -----------------------------------------------------------------------------------------------------


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


# Cost ----------------------------------------------------------------------------------------------------------------


def netlist(engine: Engine) -> Netlist:
    """Return the Verilog of an engine without the zeros of its memories, which are zero in a device without them.

    Yosys takes minutes for them.
    """
    whole = Netlist.of(engine)
    return replace(whole, verilog=_ZEROS.sub("", whole.verilog))


def costs(engines: list[Engine], progress: Progress, pool: JobPool) -> list[tuple[Cost, float, bool]]:
    """Return cost, clock in MHz and True for a whole engine that is placed and routed.

    The clock of an engine that does not fit on the device is that of its unit with the longest path.
    """
    modules = [netlist(engine) for engine in engines]
    progress.total("synthesis", len(modules))
    wholes = measure_modules(modules, TARGET, progress, pool)
    fits = [max(whole.shares(TARGET).values()) <= 1 for whole in wholes]
    routed = [module if fit else _slowest(engine) for module, engine, fit in zip(modules, engines, fits, strict=True)]
    progress.total("place and route", len(routed))
    clocks = frequencies(routed, TARGET, progress, pool)
    return list(zip(wholes, clocks, fits, strict=True))


def _slowest(engine: Engine) -> Netlist:
    units = list(engine.units.values())
    paths = [cost.path for cost in measure_modules(map(Netlist.of, units), TARGET)]
    return Netlist.of(Registered(units[paths.index(max(paths))]))


# Energy --------------------------------------------------------------------------------------------------------------


def implementations(engine: Engine) -> dict[str, Implementation]:
    """Return the units of an engine by name; lanes with other seeds are one unit."""
    units = {}
    for name, unit in engine.units.items():
        own = Implementation.of(unit)
        if name.startswith("mac"):
            name, own = name.partition("_")[0], own.with_spec(seed=1)
        units[name] = own
    return units


def operations(engine: Engine) -> Counter[str]:
    """Return the number of operations of each unit for a token of a context, a mean over its positions."""
    uses: Counter[str] = Counter()
    context = engine.shape.context
    for each in engine.program.instructions:
        number = fmean(each.count.at(0, place) * each.rows.at(0, place) for place in range(context))
        if each.op is Op.PRODUCT:
            uses[f"mac{each.operands}"] += number * engine.lanes
            sums = fmean(each.rows.at(0, place) for place in range(context)) * engine.lanes
            uses[f"store_product{each.operands}"] += sums
        elif each.op in (Op.OPERAND, Op.STORE):
            block, side = engine.products[each.operands].block, 0 if each.op is Op.OPERAND else 1
            entries = fmean(-(-each.count.at(0, at) // block) * each.rows.at(0, at) for at in range(context))
            names = [f"operand{each.operands}_{place}" for place in (side, 0)]
            uses[next((name for name in names if name in engine.units), "")] += entries
        elif each.op in (*BINARY, *UNARY, *REDUCTIONS):
            name = NAMES.get(each.op, each.op.name.lower())
            results = 1 if each.op in REDUCTIONS else number
            for unit in (*OPERANDS.get(each.op, ("element_x", "element_y")), name):
                uses[unit] += number
            uses[f"store_{each.op.name.lower() if each.op in REDUCTIONS else name}"] += results
    # Formats that agree need no conversion.
    return Counter({name: count for name, count in uses.items() if name in implementations(engine)})


def energies(
    engines: list[Engine], library: Library, progress: Progress, pool: JobPool
) -> list[tuple[float, dict[str, float]]]:
    """Return the energy of arithmetic for a token in nanojoule, and that of each unit.

    It is the number of operations of each unit times its energy in a clock cycle (`halfulp.fpga.synth.power`).
    """
    units = dict.fromkeys(unit for engine in engines for unit in implementations(engine).values())
    progress.total("energy of units", len(units))
    costs = measure_cells(units, library, progress, pool, power=True)
    picojoule = {unit: cost.energy or 0.0 for unit, (cost,) in zip(units, costs, strict=True)}
    rows = []
    for engine in engines:
        own = implementations(engine)
        parts = {name: count * picojoule[own[name]] / 1e3 for name, count in operations(engine).items()}
        rows.append((sum(parts.values()), parts))
    return rows
