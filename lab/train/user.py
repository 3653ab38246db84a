"""Networks of users: functions that return a model, its data, its loss and its optimiser."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from halfulp.golden.nn.draw import mix
from halfulp.tools.digests import digest
from halfulp.tools.imports import imported

from .data import Data, digest_of, mnist
from .networks import ADAMW, Network, classes_loss

EPOCHS, BATCH = 10, 64
"""Default training parameters."""

EXPECTED = "a torch model, or a tuple (model, train, test[, loss[, optimizer]])"


def network(name: str) -> Network:
    """Return the network of a user's function.

    Parameters
    ----------
    name : str
        ``module:function`` or ``path/to/file.py:function`` of a function without parameters. It returns a torch model,
        which is trained on the digits of `mnist`, or a tuple ``(model, train, test[, loss[, optimizer]])``. ``train``
        and ``test`` are pairs of tensors, inputs and targets, or data sets of torch with such pairs. Targets are
        classes, or real numbers for a loss of the user. ``loss`` is a function from outputs and targets to the mean
        loss; default: cross entropy. ``optimizer`` is a function from parameters to an optimiser; default: AdamW.

    Raises
    ------
    ValueError
        If the function cannot be imported, raises an error, or returns anything else, or if model or loss fail on the
        first two test examples.

    Notes
    -----
    The function is called once for the data, and once for the model of each run, whose seed torch's random generator
    has at that time.
    """
    function = imported(name)
    if not callable(function):
        raise ValueError(f"{name} is no function; expected one that returns {EXPECTED}")
    model, parts = _called(name, function, 0)
    loss, optimizer = parts[2] or classes_loss, parts[3] or ADAMW
    given = None if parts[0] is None else _data(name, parts[0], parts[1])
    if given is not None and not given.of_classes and parts[2] is None:
        raise ValueError(f"{name}: targets are real numbers, so the function must return a loss too")

    def load(path: Path | None) -> Data:
        if given is not None and path is not None:
            raise ValueError(f"{name} has data of its own; --data is for other networks")
        data = mnist(path) if given is None else given
        _try(name, model, data, loss)
        return data

    return Network(
        build=lambda data: _called(name, function)[0],
        load=load,
        epochs=EPOCHS,
        batch=BATCH,
        rate=_rate(name, model, optimizer),
        optimizer=optimizer,
        loss=loss,
        origin=digest(model, _text(loss), optimizer(model.parameters()), digest_of(*model.state_dict().values())),
    )


def _text(loss: Any) -> str:
    """Return a text of a loss that is the same in each process, unlike that of a function."""
    return str(loss) if isinstance(loss, nn.Module) else str(getattr(loss, "__qualname__", type(loss).__qualname__))


def _called(name: str, function: Callable[[], Any], seed: int | None = None) -> tuple[nn.Module, list[Any]]:
    """Call a function, if asked with a seed; return the model, and data, loss and optimiser or None for each."""
    try:
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(mix(seed, 0))
            made = function()
    except Exception as error:  # the user's function may raise anything
        raise ValueError(f"{name} raised {type(error).__name__}: {error}") from error
    model, *parts = made if isinstance(made, tuple) and made else (made,)
    if not isinstance(model, nn.Module) or len(parts) not in (0, 2, 3, 4):
        returned = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise ValueError(f"{name} returned {returned}; expected {EXPECTED}")
    parts += [None] * (4 - len(parts))
    for what, part in zip(("loss", "optimizer"), parts[2:], strict=True):
        if part is not None and not callable(part):
            raise ValueError(
                f"{name}: the {what} is of type {type(part).__name__}; expected a function, such as " + _EXAMPLES[what]
            )
    return model, parts


_EXAMPLES = {
    "loss": "torch.nn.functional.mse_loss",
    "optimizer": "functools.partial(torch.optim.SGD, lr=0.1)",
}


def _data(name: str, train: Any, test: Any) -> Data:
    return Data(f"data of {name}", _pair(name, "train", train), _pair(name, "test", test), 0)


def _pair(name: str, what: str, given: Any) -> tuple[Tensor, Tensor]:
    """Return inputs and targets as tensors."""
    try:
        if isinstance(given, Dataset):
            given = default_collate([given[place] for place in range(len(given))])  # type: ignore[arg-type]  # has one
        inputs, targets = given
        if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor)):
            raise TypeError(f"found {type(inputs).__name__} and {type(targets).__name__}")
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise ValueError(
            f"{name}: {what} must be a pair of tensors, inputs and targets, or a data set of such pairs ({error})"
        ) from error
    if len(inputs) != len(targets):
        raise ValueError(f"{name}: {what} has {len(inputs)} inputs and {len(targets)} targets")
    return inputs, targets if targets.dtype.is_floating_point else targets.to(torch.int64)


@torch.no_grad()
def _try(name: str, model: nn.Module, data: Data, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Compute the loss of two test examples; ValueError if that fails."""
    try:
        with torch.random.fork_rng(devices=[]):
            outputs = model.eval()(data.test[0][:2])
            value = loss(outputs, data.test[1][:2])
    except Exception as error:  # the user's model may raise anything
        raise ValueError(f"{name} fails on its test examples: {type(error).__name__}: {error}") from error
    if not (isinstance(value, Tensor) and value.numel() == 1):
        raise ValueError(f"{name}: the loss must be one number, not {value!r:.80}")


def _rate(name: str, model: nn.Module, optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]) -> float:
    """Return the learning rate of an optimiser, that of its first group of parameters."""
    try:
        made = optimizer(model.parameters())
        return float(made.param_groups[0]["lr"])
    except Exception as error:  # the user's function may raise anything
        raise ValueError(f"{name}: the optimizer cannot be made: {type(error).__name__}: {error}") from error
