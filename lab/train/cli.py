"""The command `halfulp train`."""

import importlib
import itertools
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halfulp.options import FORMAT, MAC_TEXTS
from halfulp.tools.commands import Parsed, Refused, requests, scheduled, show
from halfulp.tools.jobs import Job, JobPool
from halfulp.tools.progress import Progress

if TYPE_CHECKING:
    from halfulp.golden.nn import PolicyFile

    from .data import Data
    from .loop import Epoch, Plan, Run
    from .networks import Network

_FILE = click.Path(dir_okay=False, path_type=Path)
DEFAULT_FMT = "fxp4.12"
"""Default format of fitted line segments."""

_RESNETS = tuple(f"resnet{layers}" for layers in (18, 20, 34, 50, 101))
_NETWORKS = ("lenet5", "vgg16", *_RESNETS, "resnet50-224", "mobilenetv2", "alexnet", "inception")
_NETWORKS += ("gru", "nanogpt", "smallgpt", "lstm", "transformer")


def _network(ctx: click.Context, param: click.Parameter, name: str) -> str:
    if name not in _NETWORKS and ":" not in name:
        raise Refused(f"unknown network {name!r}; expected {', '.join(_NETWORKS)}, or module:function of your own")
    return name


def _device(ctx: click.Context, param: click.Parameter, name: str) -> str:
    """Return the name of a device of torch that is there."""
    kind, _, number = name.partition(":")
    if name == "cpu":
        return name
    if kind != "cuda" or not (name == "cuda" or number.isdecimal()):
        raise Refused(f"unknown device {name!r}; expected cpu, cuda or cuda:N")
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(number or 0) >= count:
        raise Refused(f"torch sees {f'{count} GPUs' if count else 'no GPU'} through CUDA, so there is no device {name}")
    return name


class _Number(click.FloatRange):
    """Parameter type of finite numbers in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not finite", param, ctx)
        return number


@click.command()
@click.argument("network", type=Parsed(words=_NETWORKS), callback=_network)
@click.option(
    "--mac",
    "macs",
    metavar="MAC",
    multiple=True,
    type=Parsed(words=MAC_TEXTS),
    help="MAC or policy for all products; repeatable",
)
@click.option(
    "--layer",
    "layers",
    metavar="RULE",
    multiple=True,
    help="PATTERN=POLICY of layers; repeatable",
)
@click.option("--policy", "file", metavar="FILE", type=_FILE, help="TOML file of policies, by layers and during a run")
@click.option("--emulate", is_flag=True, help="compute the whole program in the policy")
@click.option("--tanh", metavar="N", help="replace tanh by N segments or those of a file (gru)")
@click.option("--sigmoid", metavar="N", help="replace sigmoid by N segments or a file of them (gru)")
@click.option("--fmt", metavar="FMT", type=FORMAT, help="format of fitted segments; default: fxp4.12")
@click.option(
    "--derivative",
    type=click.Choice(["piece", "true"]),
    metavar="KIND",
    help="derivative of segments: piece or true; default: piece",
)
@click.option(
    "--data",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="folder of images or texts, or a text file",
)
@click.option(
    "--seed",
    "seeds",
    default=[0],
    metavar="N",
    multiple=True,
    type=click.IntRange(0, (1 << 63) - 1),
    help="random seed; default: 0",
)
@click.option("--epochs", metavar="N", type=click.IntRange(1), help="number of epochs; default: by network")
@click.option("--batch", metavar="N", type=click.IntRange(1), help="examples per step; default: by network")
@click.option("--rate", metavar="X", type=_Number(0, min_open=True), help="initial learning rate; default: by network")
@click.option("--scale", metavar="X", type=_Number(0, min_open=True), help="loss scale; default: 256")
@click.option("--static", is_flag=True, help="use a constant loss scale")
@click.option("--device", default="cpu", callback=_device, metavar="NAME", help="cpu (default), or cuda or cuda:N")
@click.option("--counts", is_flag=True, help="count underflows, overflows and NaN by layer (slow)")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="training examples; tests use a quarter as many")
@click.option("--resume", is_flag=True, help="continue a run that was stopped or killed")
@click.option("--restart", is_flag=True, help="start over, even after an earlier run")
@click.option("--every", default=60.0, metavar="SECONDS", type=_Number(0), help="time between checkpoints; default: 60")
@click.option("--table", metavar="FILE.csv", type=_FILE, help="table to which the result is added")
@scheduled
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="checkpoint folder; default: train/ of the build folder",
)
def train(
    network: str,
    macs: tuple[str, ...],
    layers: tuple[str, ...],
    file: Path | None,
    data: Path | None,
    resume: bool,
    restart: bool,
    every: float,
    counts: bool,
    emulate: bool,
    limit: int | None,
    seeds: tuple[int, ...],
    table: Path | None,
    pool: JobPool,
    output: Path | None,
    tanh: str | None,
    sigmoid: str | None,
    fmt: str | None,
    derivative: str | None,
    **options: Any,
) -> None:
    """Train a network in the arithmetic of a multiply-accumulate.

    NETWORK is lenet5, vgg16, resnet18, 20, 34, 50, 101 or 50-224, mobilenetv2, alexnet, inception, gru, nanogpt,
    smallgpt, lstm, transformer, or module:function or file.py:function of your own, which returns (model, train,
    test); see docs/training.md. Its layers are converted; --mac fp32 converts none. A MAC is a text such as
    e5m2*e5m2+e6m5.sr10. Each --mac is trained with each --seed. The result is a row of a table that `halfulp report`
    reads. A run that was stopped continues with --resume to the same bits. By default lenet5 and gru train on 5000
    images of MNIST.
    """
    from halfulp.tools.paths import build_root, machine_errors
    from halfulp.tools.progress import Bar

    from .loop import Interrupted, Run
    from .networks import NETWORKS
    from .results import append, check_place, results
    from .user import network as user_network

    with requests():
        if resume and restart:
            raise ValueError("give --resume or --restart, not both")
        if pool.scheduler and options["device"] != "cpu":
            raise ValueError("workers of a scheduler train on the CPU; omit --device or --scheduler")
        if pool.scheduler and network not in NETWORKS:
            raise ValueError(f"workers of a scheduler do not have {network}; train it without --scheduler")
        # The user's file may register formats, operators and devices of the policies.
        usual = NETWORKS[network] if network in NETWORKS else user_network(network)
        choices = _choices(macs, layers, file)
        _import_devices(choices, pool)
        activations = _activations({"tanh": tanh, "sigmoid": sigmoid}, fmt, derivative)
        examples = usual.load(data).limited(limit)
        place = table or results()
        runs = []
        for choice, seed in itertools.product(choices, seeds):
            plan = _plan(
                choice,
                usual,
                options,
                network=network,
                seed=seed,
                activations=activations,
                derivative=derivative or "piece",
                emulate=emulate,
            )
            # The name of a module or its path is no name of a folder.
            folder = (output or build_root() / "train") / f"{network.rpartition(':')[2]}-{plan.key(examples)}"
            run = Run(plan, examples, folder, network=usual, counted=counts, checked=True)
            if run.scaler is None and (options["scale"] or options["static"] or counts):
                raise ValueError("--scale, --static and --counts have no effect, because nothing is in a policy")
            _begin(run, resume, restart)
            runs.append(run)
        check_place(place)
    for run in runs:
        # Create folders first, so that errors of the file system come before the work.
        with machine_errors(str(run.folder)):
            run.folder.mkdir(parents=True, exist_ok=True)
        if run.conversion is not None:
            click.echo(str(run.conversion), err=True)
    try:
        # Some errors of layers occur only at their first use.
        with requests(), pool, Bar(f"train {network}") as bar:
            for row in _rows(runs, pool, bar, every, counts):
                append(place, row)
                _print_row(row)
    except Interrupted as stop:
        click.echo(f"halfulp: stopped; {stop}", err=True)
        sys.exit(130)
    _print_files(() if pool.scheduler else runs, len(runs), place)


def _choices(macs: Sequence[str], layers: Sequence[str], file: Path | None) -> "list[PolicyFile]":
    """Return the policies of --mac and --layer, or of --policy; raise ValueError if a run cannot have them."""
    from halfulp.golden.nn import Policy, PolicyFile

    if bool(macs) == (file is not None):
        raise ValueError("give one of --mac and --policy; --mac fp32 is torch's own arithmetic")
    if layers and file is not None:
        raise ValueError("--layer has no effect with --policy; write [layers.PATTERN] in the file")
    rules = {}
    for layer in layers:
        pattern, equals, text = layer.partition("=")
        if not equals:
            raise ValueError(f"invalid --layer {layer!r}: expected PATTERN=POLICY, such as '*norm*=fp32'")
        pattern = pattern.strip()
        if pattern in ("", "*"):
            raise ValueError(f"invalid --layer {layer!r}: expected a pattern of some layers; --mac has all others")
        if pattern in rules:
            raise ValueError(f"--layer has two policies of {pattern!r}; give one of them")
        rules[pattern] = Policy.parse(text.strip())
    return [PolicyFile(rules | {"*": Policy.parse(mac)}) for mac in macs] if file is None else [PolicyFile.read(file)]


def _import_devices(choices: "Sequence[PolicyFile]", pool: JobPool) -> None:
    """Import the modules of the devices of policies; ValueError for the workers of a scheduler, which have none."""
    from halfulp.golden.nn.product import MODULES

    for device in sorted({policy.device for choice in choices for policy in choice.policies if policy.device}):
        if pool.scheduler:
            raise ValueError(f"workers of a scheduler do not have device {device}; train without --scheduler")
        if device in MODULES:
            importlib.import_module(MODULES[device])


def _plan(choice: "PolicyFile", usual: "Network", options: dict[str, Any], **parameters: Any) -> "Plan":
    """Return the plan of a run in the policies of a choice; what the options omit is that of the network."""
    from .loop import Plan

    first, *others = (tuple((pattern, str(policy)) for pattern, policy in rules.items()) for rules in choice.choices)
    return Plan(
        policies=first,
        later=tuple(zip(choice.epochs, others, strict=False)),
        plateaus=() if choice.epochs else tuple(others),
        **choice.settings,
        epochs=options["epochs"] or usual.epochs,
        batch=options["batch"] or usual.batch,
        rate=options["rate"] or usual.rate,
        scale=options["scale"] or 256.0,
        device=options["device"],
        adaptive=not options["static"],
        origin=usual.origin,
        **parameters,
    )


def _rows(runs: Sequence["Run"], pool: JobPool, bar: Progress, every: float, counted: bool) -> Iterator[dict[str, str]]:
    """Train, here or on the workers of a scheduler, and return the row of results of each run when it is finished."""
    from .loop import versions
    from .results import row_of

    if pool.scheduler:
        jobs = [
            Job(f"train {run.plan.network}", train_there, (run.plan, run.data, _command(), counted)) for run in runs
        ]
        yield from (row for _, row in pool.run(jobs, versions=versions))
        return
    for run in runs:
        run.train(bar, every=every, on_epoch=partial(_print_epoch, run.network.result))
        if run.report is not None:
            run.report.write(run.folder / "report.json")
            click.echo(f"halfulp: {run.report.summary}; see {run.folder / 'report.json'}", err=True)
        yield row_of(run, _command())


def train_there(plan: "Plan", data: "Data", command: str, counted: bool) -> dict[str, str]:
    """Run a plan on a worker, from its checkpoint there if it has one, and return its row of results."""
    from halfulp.tools.paths import work_root

    from .loop import Run
    from .results import row_of

    folder = work_root() / "train" / f"{plan.network}-{plan.key(data)}"
    run = Run(plan, data, folder, counted=counted, checked=True)
    folder.mkdir(parents=True, exist_ok=True)
    if run.checkpoint.is_file():
        run.load(run.checkpoint)
    run.train()
    return row_of(run, command)


def _activations(
    options: dict[str, str | None], fmt: str | None, derivative: str | None
) -> tuple[tuple[str, str], ...]:
    """Return function names and the texts of their segment tables, which are fitted or read from files."""
    from halfulp.hdl.fit.store import SUFFIX, segments_of

    tables = []
    fitted = False
    for name, given in options.items():
        if given is None:
            continue
        if given.endswith(SUFFIX):
            tables.append((name, segments_of(given).text))
            continue
        if not given.isdecimal():
            raise ValueError(f"--{name} must be a number of segments or a {SUFFIX} file, not {given!r}")
        fitted = True
        tables.append((name, segments_of(name, fmt=fmt or DEFAULT_FMT, pieces=int(given)).text))
    for option, value, means in (("--fmt", fmt, fitted), ("--derivative", derivative, bool(tables))):
        if value is not None and not means:
            raise ValueError(f"{option} has no effect without --tanh or --sigmoid and a number of segments")
    return tuple(tables)


def _begin(run: Any, resume: bool, restart: bool) -> None:
    """Load the checkpoint to resume; ValueError if there is none, or if an unfinished run needs one of the options."""
    checkpoint = next((path for path in (run.checkpoint, run.final) if path.is_file()), None)
    if resume and checkpoint is None:
        raise ValueError(f"no checkpoint {run.checkpoint} to resume; start without --resume")
    if resume:
        run.load(checkpoint)
    elif checkpoint == run.checkpoint and not restart:
        raise ValueError(
            f"{checkpoint} belongs to an unfinished run; continue with --resume or start again with --restart"
        )


def _print_epoch(result: str, epoch: "Epoch") -> None:
    accuracy = "" if math.isnan(epoch.accuracy) else f", accuracy {epoch.accuracy:.2f} %"
    accuracy += "" if epoch.score is None else f", {result} {epoch.score:.2f}"
    click.echo(
        f"halfulp: epoch {epoch.number}: training loss {epoch.trained:.4f}, test loss {epoch.loss:.4f}{accuracy}",
        err=True,
    )


def _print_row(row: dict[str, str]) -> None:
    from halfulp.golden.nn import Counts

    from .results import NONE

    accuracy = f"accuracy {float(row['accuracy']):.2f} %, " if row["accuracy"] != NONE else ""
    scores = "".join(f"{name} {float(row[name]):.2f}, " for name in ("perplexity", "BLEU") if row[name])
    text = f"{row['mac']}, {row['network']}, seed {row['seed']}: {accuracy}{scores}loss {row['loss']}"
    show(text + (f"\n{Counts(row['counts'])}" if row["counts"] else ""), row)


def _print_files(runs: Sequence["Run"], rows: int, table: Path) -> None:
    written = f"{', '.join(str(run.final) for run in runs)} and " if runs else ""
    click.echo(f"halfulp: wrote {written}{'a row' if rows == 1 else f'{rows} rows'} of {table}", err=True)


def _command() -> str:
    """Return the command line without ``--resume`` and ``--restart``."""
    return shlex.join(["halfulp", *(word for word in sys.argv[1:] if word not in ("--resume", "--restart"))])
