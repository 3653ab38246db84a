"""A training run: the same bits from the same plan, however often it is stopped or killed in between.

They do not depend on the number of threads either: sums of described arithmetic have an order, and where layers are
left to torch, whose sums have none, it is kept to one thread.
"""

import io
import math
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp.golden.nn import Computed, LossScaler, PiecewiseLinear, Policy, WeightUpdate, convert, swap_activations
from halfulp.golden.nn.cast import check_holds
from halfulp.golden.nn.draw import mix
from halfulp.hdl.specs.segments import Segments
from halfulp.tools.digests import digest, version
from halfulp.tools.paths import write_whole
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import one_thread

from .data import Data
from .networks import NETWORKS

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
"""Modules of torch that may be swapped for line segments."""

TESTED = 250
"""Examples that are tested at once; the number decides the bits of stochastic rounding."""


@dataclass(frozen=True)
class Plan:
    """What decides the bits of a run, beside the data.

    Parameters
    ----------
    network : str
        A name of `NETWORKS`.
    policies : tuple of (str, str)
        Patterns of names of layers, and their policies as texts.
    seed : int
        Of parameters, order of the data and random words.
    epochs, batch : int
    rate : float
        Learning rate at the beginning.
    scale : float
        Loss scale at the beginning.
    adaptive : bool
        Whether it changes.
    activations : tuple of (str, str)
        Modules by the names of `ACTIVATIONS`, and the text of the segments that each is swapped for.
    derivative : str
        Theirs: ``piece`` or ``true``.
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

    def key(self, data: Data) -> str:
        """Short name of the run."""
        parts = asdict(self)
        if not self.activations:
            # A plan that has none has the name that it had before there were any.
            del parts["activations"], parts["derivative"]
        return digest(*(f"{name}={value}" for name, value in parts.items()), data.digest)

    @property
    def swaps(self) -> dict[str | type[nn.Module], PiecewiseLinear]:
        """Line segments by the modules that they take the place of."""
        return {
            ACTIVATIONS[name]: PiecewiseLinear(Segments.read(text), derivative=self.derivative)
            for name, text in self.activations
        }

    @property
    def rules(self) -> dict[str, Policy]:
        """Policies by patterns."""
        return {pattern: Policy.parse(text) for pattern, text in self.policies}


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to: mean loss in training; loss and accuracy, in percent, in the tests after it."""

    number: int
    trained: float
    loss: float
    accuracy: float


def versions() -> dict[str, str]:
    """Versions of the programs that decide the bits of a run."""
    return {"torch": version("torch")}


class Interrupted(Exception):
    """A run was stopped, and can go on."""


class Run:
    """A training run, from its beginning or from a checkpoint.

    Parameters
    ----------
    plan : Plan
    data : Data
    folder : Path
        Where ``checkpoint.pt`` is kept, and in the end ``final.pt``.

    Raises
    ------
    ValueError
        If no layer of the network can be converted as planned, or float32, in which networks are trained, does not
        hold the numbers of a format.
    """

    def __init__(self, plan: Plan, data: Data, folder: Path) -> None:
        self.plan, self.data, self.folder = plan, data, folder
        self.network = NETWORKS[plan.network]
        self.key = plan.key(data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(plan.seed, 0))
            model = self.network.build(data)
        self.conversion = convert(model, plan.rules, seed=plan.seed, inplace=True)
        self.model = swap_activations(self.conversion.model, plan.swaps, inplace=True)
        _check_held(self.model)
        self.optimizer = self.network.optimizer(self.model, plan.rate)
        # Without products in formats of few bits there is nothing to scale for.
        self.scaler = LossScaler(plan.scale, adaptive=plan.adaptive) if self.conversion.swapped else None
        self.updates = self._updates()
        self.step = 0
        self.seconds = 0.0
        self.losses: list[float] = []
        self.epochs: list[Epoch] = []

    def _updates(self) -> list[WeightUpdate]:
        """Those that policies ask for, one for each layer; parameters that layers share have that of the first."""
        found, seen = [], set()
        for name, layer in self.model.named_modules():
            if not isinstance(layer, Computed) or isinstance(layer, PiecewiseLinear) or layer.policy.update is None:
                continue
            own = [one for one in layer.parameters() if id(one) not in seen]
            seen |= {id(one) for one in own}
            seed = mix(self.plan.seed, *name.encode()) >> 1
            policy = layer.policy
            assert policy.update is not None
            found.append(WeightUpdate(self.optimizer, policy.update, master=policy.master, parameters=own, seed=seed))
        return found

    @property
    def checkpoint(self) -> Path:
        """File that a run goes on from."""
        return self.folder / "checkpoint.pt"

    @property
    def final(self) -> Path:
        """File that a finished run leaves."""
        return self.folder / "final.pt"

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch."""
        return math.ceil(len(self.data.train[0]) / self.plan.batch)

    @property
    def steps(self) -> int:
        """Steps of the run."""
        return self.plan.epochs * self.per_epoch

    def save(self, path: Path) -> None:
        """Leave all that the run is made of, in a file that is there whole or not at all."""
        held = io.BytesIO()
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
                "updates": [update.state_dict() for update in self.updates],
            },
            held,
        )
        write_whole(path, held.getvalue())

    def load(self, path: Path) -> None:
        """Go on from a checkpoint, or be what a finished run left.

        Raises
        ------
        ValueError
            If the file is none, or of another run.
        """
        state = read(path)
        if state["key"] != self.key:
            raise ValueError(f"{path} is of another run: its plan or its data differ")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        for update, saved in zip(self.updates, state["updates"], strict=True):
            update.load_state_dict(saved)
        self.step, self.seconds, self.losses = state["step"], state["seconds"], state["losses"]
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]

    def train(
        self,
        progress: Progress = silent,
        *,
        every: float = 60.0,
        told: Callable[[Epoch], None] = lambda epoch: None,
    ) -> Epoch:
        """Train to the end; says what the last epoch came to.

        Parameters
        ----------
        progress : Progress
        every : float
            Seconds after which there is a checkpoint, at the next step; there is one after each epoch anyway.
        told : callable
            Is told of each epoch.

        Raises
        ------
        Interrupted
            After Ctrl-C or a signal to end, when the step that it was at is done and saved.
        """
        progress.total("training", self.steps, self.step)
        saved = before = time.monotonic()
        by_torch = self.conversion.left or any(
            None in swap.policy.macs for swap in self.conversion.swapped if swap.policy
        )
        ordered = one_thread() if by_torch else nullcontext()
        with _patient() as stopped, torch.random.fork_rng(devices=[]), ordered:
            while self.step < self.steps:
                self._step()
                progress.advance(1)
                if self.step % self.per_epoch == 0:
                    self._end_epoch()
                    told(self.epochs[-1])
                now = time.monotonic()
                self.seconds, before = self.seconds + now - before, now
                ended = self.step % self.per_epoch == 0
                if ended or stopped() or now - saved >= every:
                    self.save(self.checkpoint)
                    saved = time.monotonic()
                if stopped() and self.step < self.steps:
                    raise Interrupted(f"step {self.step} of {self.steps} is saved; the same with --resume goes on")
        self.save(self.final)
        self.checkpoint.unlink(missing_ok=True)
        return self.epochs[-1]

    def _step(self) -> None:
        """One step; all that is random in it is a function of its number."""
        epoch, place = divmod(self.step, self.per_epoch)
        order = torch.randperm(len(self.data.train[0]), generator=_generator(self.plan.seed, 1, epoch))
        chosen = order[place * self.plan.batch : (place + 1) * self.plan.batch]
        inputs, classes = (tensor[chosen] for tensor in self.data.train)
        if self.data.vary is not None:
            inputs = self.data.vary(inputs, _generator(self.plan.seed, 2, self.step))
        torch.manual_seed(mix(self.plan.seed, 3, self.step))
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate * 0.5 * (1 + math.cos(math.pi * self.step / self.steps))
        self.model.train()
        self.optimizer.zero_grad()
        loss = _loss(self.model(inputs), classes)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
        self.losses.append(loss.item())
        self.step += 1

    def _end_epoch(self) -> None:
        loss, accuracy = tested(self.model, self.data)
        self.epochs.append(Epoch(len(self.epochs) + 1, sum(self.losses) / len(self.losses), loss, accuracy))
        self.losses = []


def _check_held(model: nn.Module) -> None:
    """Refuse formats before the work whose numbers the network's own values do not hold."""
    for layer in model.modules():
        if isinstance(layer, PiecewiseLinear):
            check_holds(torch.float32, layer.table.out)
        elif isinstance(layer, Computed):
            policy = layer.policy
            macs = (policy.forward, policy.input_gradient, policy.weight_gradient)
            casts = (policy.weights, policy.activations, policy.gradients, policy.bias)
            for fmt in [*(mac.o for mac in macs if mac), *(cast.fmt for cast in casts if cast.fmt)]:
                check_holds(torch.float32, fmt)


def _generator(*parts: int) -> torch.Generator:
    return torch.Generator().manual_seed(mix(*parts))


def _loss(scores: Tensor, classes: Tensor, reduction: str = "mean") -> Tensor:
    """Cross entropy over all places."""
    return F.cross_entropy(scores.flatten(0, -2), classes.flatten(), reduction=reduction)


@torch.no_grad()
def tested(model: nn.Module, data: Data) -> tuple[float, float]:
    """Mean loss in nats and accuracy in percent on the tests."""
    model.eval()
    loss, right = 0.0, 0
    for inputs, classes in zip(*(tensor.split(TESTED) for tensor in data.test), strict=True):
        scores = model(inputs)
        loss += _loss(scores, classes, "sum").item()
        right += int((scores.argmax(-1) == classes).sum())
    return loss / data.test[1].numel(), 100 * right / data.test[1].numel()


def read(path: Path) -> dict[str, Any]:
    """What a run left.

    Raises
    ------
    ValueError
        If the file is none of these.
    """
    try:
        state = torch.load(path, weights_only=True)
        if not {"key", "plan", "model"} <= set(state):
            raise ValueError("it has no plan and model")
    except FileNotFoundError:
        raise ValueError(f"there is no {path}") from None
    except pickle.UnpicklingError as error:
        # torch goes on with how to load it all the same, whatever it does.
        raise ValueError(f"{path} is no checkpoint of a training run: torch does not read it") from error
    except Exception as error:
        # torch raises whatever it comes upon in a file that is not its own.
        raise ValueError(f"{path} is no checkpoint of a training run: {str(error).splitlines()[0]}") from error
    found: dict[str, Any] = state
    return found


@contextmanager
def _patient() -> Iterator[Callable[[], bool]]:
    """Wait with the first request to end until whoever asks is ready; the second one is as always."""
    asked: list[int] = []
    before: dict[int, Any] = {}

    def note(signum: int, frame: Any) -> None:
        asked.append(signum)
        for number, handler in before.items():
            signal.signal(number, handler)

    if threading.current_thread() is threading.main_thread():
        for number in map(int, (signal.SIGINT, signal.SIGTERM)):
            before[number] = signal.signal(number, note)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
