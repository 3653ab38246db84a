"""Training runs: a plan always gives the same bits, even if the run is stopped or killed and resumed.

The bits do not depend on the number of threads: sums in the arithmetic of a policy have a defined order, and layers in
torch's own arithmetic, whose order of summation depends on threads, run in one thread.
"""

import hashlib
import io
import math
import pickle
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from halfulp.golden.nn import (
    Computed,
    Counts,
    LossScaler,
    PiecewiseLinear,
    Policy,
    PolicyFile,
    Schedule,
    WeightUpdate,
    convert,
    swap_activations,
)
from halfulp.golden.nn.cast import check_holds
from halfulp.golden.nn.draw import mix
from halfulp.golden.nn.policy import PROGRAM
from halfulp.golden.nn.select import Candidate, matches
from halfulp.golden.program import Report, emulate
from halfulp.hdl.specs.segments import Segments
from halfulp.tools.digests import digest, version
from halfulp.tools.paths import write_whole
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import threads

from .data import IGNORED, Data
from .networks import NETWORKS, Network
from .texts import bleu, references

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
"""Torch modules that can be replaced by piecewise linear functions, by name."""

TESTED = 250
"""Batch size in tests; it affects the random words of stochastic rounding."""

UNREADABLE = (
    *(OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AssertionError, AttributeError),
    *(struct.error, pickle.UnpicklingError),
)
"""Exceptions of `torch.load` for damaged or invalid files."""


@dataclass(frozen=True)
class Plan:
    """Parameters of a run; with the data they decide its bits.

    Parameters
    ----------
    network : str
        Name in `NETWORKS`, or of a user's function (see `halfulp.lab.train.user`).
    policies : tuple of (str, str)
        Patterns of layer names, and the texts of their policies.
    seed : int
        Seed of initial parameters, order of examples and random words.
    epochs, batch : int
        Number of epochs and batch size.
    rate, scale : float
        Initial learning rate and loss scale.
    adaptive : bool
        The loss scale is adaptive (see `LossScaler`).
    activations : tuple of (str, str)
        Names in `ACTIVATIONS`, and the texts of the segment tables that replace these modules.
    derivative : str
        Derivative of the segments: ``piece`` or ``true``.
    origin : str
        Digest that identifies a user's network (see `Network`).
    emulate : bool
        Compute the whole program in the arithmetic of the policies (see `halfulp.golden.emulate`); default: layers are
        converted.
    later : tuple of (int, tuple)
        Numbers of finished epochs after which other policies hold, in ascending order.
    plateaus : tuple of tuple
        Policies after each plateau of the training loss.
    patience, threshold : int, float
        Parameters of plateaus (see `Schedule`).
    device : str
        Device of torch, such as ``cuda``. Sums in torch's own arithmetic may have other bits on a GPU in each run.
    """

    network: str
    policies: tuple[tuple[str, str], ...]
    seed: int
    epochs: int
    batch: int
    rate: float
    scale: float = 256.0
    adaptive: bool = True
    activations: tuple[tuple[str, str], ...] = ()
    derivative: str = "piece"
    origin: str = ""
    emulate: bool = False
    later: tuple[tuple[int, tuple[tuple[str, str], ...]], ...] = ()
    plateaus: tuple[tuple[tuple[str, str], ...], ...] = ()
    patience: int = 3
    threshold: float = 1e-3
    device: str = "cpu"

    def key(self, data: Data) -> str:
        """Return a short name of the run, which identifies plan and data."""
        return digest(self, data.digest)

    @property
    def swaps(self) -> dict[str | type[nn.Module], PiecewiseLinear]:
        """Piecewise linear functions by the modules that they replace."""
        return {
            ACTIVATIONS[name]: PiecewiseLinear(Segments.read(text), derivative=self.derivative)
            for name, text in self.activations
        }

    @property
    def rules(self) -> dict[str, Policy]:
        """Policies by layer name pattern."""
        return _parsed(self.policies)

    @property
    def file(self) -> PolicyFile:
        """Policies and their changes, as a file has them."""
        settings = {"patience": self.patience, "threshold": self.threshold}
        epochs = {epoch: _parsed(policies) for epoch, policies in self.later}
        return PolicyFile(self.rules, epochs, tuple(map(_parsed, self.plateaus)), settings)


def _parsed(policies: tuple[tuple[str, str], ...]) -> dict[str, Policy]:
    return {pattern: Policy.parse(text) for pattern, text in policies}


@dataclass(frozen=True)
class Epoch:
    """Result of an epoch: mean training loss, then loss and accuracy (in percent) on the test set.

    ``score`` is the perplexity of a language model, or BLEU in percent of the translations of the last epoch; None for
    other networks.
    """

    number: int
    trained: float
    loss: float
    accuracy: float
    score: float | None = None


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide the bits of a run."""
    return {"torch": version("torch")}


class Interrupted(Exception):
    """Interruption of a run by a signal, after a checkpoint."""


class Run:
    """Training run, which starts from the beginning or from a checkpoint.

    Parameters
    ----------
    plan : Plan
        Parameters of the run.
    data : Data
        Training and test set.
    folder : Path
        Folder for ``checkpoint.pt`` during the run, and ``final.pt`` at its end.
    network : Network, optional
        Network of the plan; default: that in `NETWORKS`.
    counted : bool
        Count underflow, overflow and lost NaN of the training steps in ``counts``.
    checked : bool
        Refuse a pattern that selects no operation of the first step of an emulated program; default: it has no effect.

    Raises
    ------
    ValueError
        If a pattern matches no layer of the network, or float32, the dtype of the networks, does not represent the
        numbers of a format.

    Attributes
    ----------
    report : Report, optional
        Operations of the last training step of an emulated program.
    """

    def __init__(
        self,
        plan: Plan,
        data: Data,
        folder: Path,
        *,
        network: Network | None = None,
        counted: bool = False,
        checked: bool = False,
    ) -> None:
        self.plan, self.data, self.folder, self.checked = plan, data, folder, checked
        self.checkpoint, self.final = folder / "checkpoint.pt", folder / "final.pt"
        self.per_epoch = math.ceil(len(data.train[0]) / plan.batch)
        self.steps = plan.epochs * self.per_epoch
        self.counts = Counts() if counted else None
        self.network = network or NETWORKS[plan.network]
        self.key = plan.key(data)
        self.file = plan.file
        self.rules = self.file.rules
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(plan.seed, 0))
            model = self.network.build(data)
        model = model.to(plan.device)
        self.conversion = None if plan.emulate else convert(model, self.rules, seed=plan.seed)
        self.report: Report | None = None
        converted = model if self.conversion is None else self.conversion.model
        self.model = swap_activations(converted, plan.swaps, inplace=True)
        self._check_held()
        self.optimizer = self.network.optimizer(self.model.parameters())
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self.shares = [rate / rates[0] for rate in rates]
        # Networks in torch's own arithmetic need no loss scale.
        self.scaler = LossScaler(plan.scale, adaptive=plan.adaptive) if self._computed() else None
        self.updates = self._updates()
        self.step = 0
        self.seconds = 0.0
        self.losses: list[float] = []
        self.epochs: list[Epoch] = []
        self.histories: dict[str, Tensor] = {}
        target = self if plan.emulate else self.model
        self.schedule = Schedule(target, self.file.choice, seed=plan.seed, **self.file.settings)

    def set_policy(self, rules: dict[str, Policy]) -> None:
        """Set the policies of an emulated program."""
        self.rules = rules

    def _computed(self) -> bool:
        """Return True if any operation is in the arithmetic of a policy."""
        if self.conversion is not None:
            return any(convert(self.model, rules).swapped for rules in self.file.choices)
        return any(not policy.plain or any(getattr(policy, name) for name in PROGRAM) for policy in self.file.policies)

    def _check_held(self) -> None:
        """Check that float32, the dtype of networks, represents the numbers of all formats; ValueError otherwise."""
        formats = [module.table.out for module in self.model.modules() if isinstance(module, PiecewiseLinear)]
        for policy in self.file.policies:
            formats += [*(mac.o for mac in policy.macs if mac), *(cast.fmt for cast in policy.casts if cast.fmt)]
        for fmt in formats:
            check_holds(torch.float32, fmt)

    def _updates(self) -> list[WeightUpdate]:
        """Make the weight updates of the policies; shared parameters have the update of the first layer."""
        updates, seen = [], set()
        for name, layer in self.model.named_modules():
            policy = self._policy_of(name, layer)
            if policy is not None and (cast := policy.update) is not None:
                own = [
                    parameter
                    for parameter in layer.parameters(self.conversion is not None)
                    if id(parameter) not in seen
                ]
                seen |= {id(parameter) for parameter in own}
                seed = mix(self.plan.seed, *name.encode()) >> 1
                if own:
                    updates.append(WeightUpdate(self.optimizer, cast, master=policy.master, parameters=own, seed=seed))
        return updates

    def _policy_of(self, name: str, layer: nn.Module) -> Policy | None:
        if self.conversion is not None:
            return layer.policy if isinstance(layer, Computed) else None
        candidate = Candidate((name,), (type(layer),))
        return next((policy for pattern, policy in self.rules.items() if matches(pattern, candidate)), None)

    def save(self, path: Path) -> None:
        """Save a checkpoint."""
        written = io.BytesIO()
        torch.save(
            {
                "key": self.key,
                "plan": asdict(self.plan),
                "step": self.step,
                "seconds": self.seconds,
                "losses": self.losses,
                "epochs": [asdict(epoch) for epoch in self.epochs],
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": None if self.scaler is None else self.scaler.state_dict(),
                "histories": self.histories,
                "schedule": self.schedule.state_dict(),
                "counts": self.counts and self.counts.record,
            },
            written,
        )
        write_whole(path, _sealed(written.getvalue()))

    def load(self, path: Path) -> None:
        """Load a checkpoint; ValueError if it is invalid or of another run."""
        state = read(path)
        if state["key"] != self.key:
            raise ValueError(f"{path} belongs to another run: its plan or its data differ")
        if self.counts is not None:
            if not state.get("counts"):
                raise ValueError(f"{path} belongs to a run without counts; resume without --counts, or restart")
            self.counts = Counts(state["counts"])
        self.schedule.load_state_dict(state["schedule"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        self.step, self.seconds, self.losses = state["step"], state["seconds"], state["losses"]
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self.histories = {name: history.to(self.plan.device) for name, history in state["histories"].items()}

    def train(
        self,
        progress: Progress = silent,
        *,
        every: float = 60.0,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    ) -> Epoch:
        """Train to the end and return the last epoch.

        Parameters
        ----------
        progress : Progress
            Receiver of the progress, in steps.
        every : float
            Seconds between checkpoints; each epoch ends with one too.
        on_epoch : callable
            Called with each epoch.

        Raises
        ------
        Interrupted
            After Ctrl-C or SIGTERM, when the current step is finished and saved.
        """
        progress.total("training", self.steps, self.step)
        saved = before = time.monotonic()
        ordered = threads(1) if self._by_torch() else nullcontext()
        with _deferred_signals() as stopped, torch.random.fork_rng(devices=[]), ordered:
            while self.step < self.steps:
                with self.counts or nullcontext():
                    self._step()
                progress.advance(1)
                if self.step % self.per_epoch == 0:
                    self._end_epoch()
                    on_epoch(self.epochs[-1])
                now = time.monotonic()
                self.seconds, before = self.seconds + now - before, now
                ended = self.step % self.per_epoch == 0
                if ended or stopped() or now - saved >= every:
                    self.save(self.checkpoint)
                    saved = time.monotonic()
                if stopped() and self.step < self.steps:
                    raise Interrupted(f"step {self.step} of {self.steps} is saved; continue with --resume")
        self.save(self.final)
        self.checkpoint.unlink(missing_ok=True)
        return self.epochs[-1]

    def _step(self) -> None:
        """Run one step; its random numbers depend on the number of the step only."""
        epoch, place = divmod(self.step, self.per_epoch)
        order = torch.randperm(len(self.data.train[0]), generator=_generator(self.plan.seed, 1, epoch))
        chosen = order[place * self.plan.batch : (place + 1) * self.plan.batch]
        inputs, classes = (tensor[chosen] for tensor in self.data.train)
        if self.data.vary is not None:
            inputs = self.data.vary(inputs, _generator(self.plan.seed, 2, self.step))
        inputs, classes = self.data.prepare(inputs.to(self.plan.device), classes.to(self.plan.device))
        torch.manual_seed(mix(self.plan.seed, 3, self.step))
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=True):
            group["lr"] = self.plan.rate * share * self.network.schedule(self.step, self.steps)
        self.model.train()
        self.optimizer.zero_grad()
        with self._emulated(4, self.step) as emulation:
            loss = self.network.loss(self.model(inputs), classes)
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        with emulation:
            scaled.backward()
        # The division of gradients by the scale and by their norm is outside of the program.
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.network.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.network.clip)
        if self.scaler is None:
            emulation(self.optimizer.step)()
        else:
            emulation(self.scaler.step)(self.optimizer)
            self.scaler.update()
        if isinstance(emulation, emulate):
            self._check_patterns(emulation)
            self.report, self.histories = emulation.report(), emulation.state_dict()
        self.losses.append(loss.item())
        self.step += 1

    def _check_patterns(self, program: emulate) -> None:
        """Check, after the first step, that each pattern selected an operation; ValueError otherwise."""
        if self.checked and (unused := program.unused):
            raise ValueError(
                f"{unused[0]!r} selects no operation of a training step; report.json of a run without it lists modules "
                "and operations"
            )
        self.checked = False

    def _emulated(self, *parts: int) -> "emulate | _Plain":
        """Return the context of a step or test; its random words depend on the parts only."""
        if not self.plan.emulate:
            return _Plain()
        program = emulate(self.rules, seed=mix(self.plan.seed, *parts) >> 1)
        program.load_state_dict(self.histories)
        return program

    def _by_torch(self) -> bool:
        """Return True if a sum may be in torch's own arithmetic, whose order depends on threads."""
        if self.conversion is None:
            left = any("*" not in rules for rules in self.file.choices)
        else:
            left = bool(self.conversion.left)
        return left or any(None in policy.macs for policy in self.file.policies)

    def _end_epoch(self) -> None:
        with self._emulated(5, self.step):
            loss, accuracy = tested(self.model, self.data, self.network.loss)
            score = self._score(loss)
        trained = sum(self.losses) / len(self.losses)
        self.epochs.append(Epoch(len(self.epochs) + 1, trained, loss, accuracy, score))
        self.schedule.step(trained)
        self.losses = []

    def loss_in_fp32(self) -> float:
        """Return the mean loss on the test set in torch's own arithmetic: long sums of a policy may saturate."""
        return tested(self.model, self.data, self.network.loss)[0]

    def _score(self, loss: float) -> float | None:
        """Return the result beside accuracy and loss; translations take long, so only those of the last epoch count."""
        if self.network.result == "perplexity":
            # Infinite for large losses, and NaN for NaN, where math.exp raises OverflowError.
            return torch.tensor(loss, dtype=torch.float64).exp().item()
        if self.network.result == "BLEU" and self.step == self.steps:
            return translated(self.model, self.data)
        return None


class _Plain(ContextDecorator):
    """Context of a step that is not emulated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _generator(*parts: int) -> torch.Generator:
    return torch.Generator().manual_seed(mix(*parts))


@torch.no_grad()
def tested(model: nn.Module, data: Data, loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[float, float]:
    """Return the mean loss and the accuracy in percent on the test set, NaN if targets are no classes."""
    model.eval()
    total, right, count = 0.0, 0, 0
    for inputs, targets in _test_batches(model, data):
        outputs = model(inputs)
        known = targets != IGNORED if data.of_classes else torch.ones_like(targets, dtype=torch.bool)
        number = int(known.sum())
        # The mean loss of a batch without a target is NaN.
        total += loss(outputs, targets).item() * number if number else 0.0
        count += number
        counted = data.of_classes and outputs.shape[:-1] == targets.shape
        if counted:
            right += int((outputs.argmax(-1) == targets)[known].sum())
    return total / count, 100 * right / count if counted else math.nan


@torch.no_grad()
def translated(model: nn.Module, data: Data) -> float:
    """Return BLEU, in percent, of the translations of the test set."""
    model.eval()
    translations, wanted = [], []
    for inputs, targets in _test_batches(model, data):
        translations += model.translate(inputs[:, : -targets.shape[1]])  # type: ignore[operator]  # a method of its class
        wanted += references(targets)
    return bleu(translations, wanted)


def _test_batches(model: nn.Module, data: Data) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of the test set on the device of a model."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    for inputs, targets in zip(*(tensor.split(TESTED) for tensor in data.test), strict=True):
        yield data.prepare(inputs.to(device), targets.to(device))


_SEAL = b"halfulp sha256 "
"""Beginning of the ZIP comment of a checkpoint; the digest of the file without the comment follows."""


def _sealed(content: bytes) -> bytes:
    """Append a digest to a ZIP file as its comment, because torch does not verify the checksums in the file."""
    content = content[:-2]
    comment = _SEAL + hashlib.sha256(content).hexdigest().encode()
    return content + len(comment).to_bytes(2, "little") + comment


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint; ValueError if it is invalid or damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if content != _sealed(content[: -len(_SEAL) - 64]):
        raise ValueError(f"{path} is damaged, or no checkpoint of a training run: its digest is missing or wrong")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        complete = {"key", "plan", "model"} <= set(state)
    except UNREADABLE as error:
        # The message of torch is not shown, because it recommends unsafe loading.
        raise ValueError(f"{path} is no checkpoint of a training run: torch cannot read it") from error
    if not complete:
        raise ValueError(f"{path} is no checkpoint of a training run: it has no plan or no model")
    return state


@contextmanager
def _deferred_signals() -> Iterator[Callable[[], bool]]:
    """Defer the first SIGINT or SIGTERM; yield a function that returns True after it. A second signal acts at once."""
    came: list[int] = []
    before: dict[int, Any] = {}

    def note(signum: int, frame: Any) -> None:
        came.append(signum)
        for number, handler in before.items():
            signal.signal(number, handler)

    if threading.current_thread() is threading.main_thread():
        for number in map(int, (signal.SIGINT, signal.SIGTERM)):
            before[number] = signal.signal(number, note)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
