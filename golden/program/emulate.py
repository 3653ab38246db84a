"""A context in which every operation of torch is computed in the arithmetic of a policy."""

import contextlib
import functools
import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from halfulp.golden.nn.amax import ROLES, delayed
from halfulp.golden.nn.observe import listed
from halfulp.golden.nn.policy import Policy
from halfulp.golden.nn.recompute import around, of_use, repeats
from halfulp.golden.nn.select import Pattern, of_modules
from halfulp.golden.nn.swap import Rules
from halfulp.golden.nn.update import lacks_update, warn_of_update
from halfulp.golden.torch_internals import (
    backward_pass,
    is_recording,
    is_under_vmap,
    next_number,
    number_of_node,
    running_node,
)

from .dispatch import Dispatch, composite
from .program import Program, policies_of, shown
from .recurrent import layers
from .report import UPDATE, Report
from .site import Place, Site, address, names_in, outside

if TYPE_CHECKING:
    from .compiled import Backend

TRANSFORMS = 8
"""Largest number of nested transforms of torch.func whose backward operations have the places of forward ones."""

PLACES = 1 << 18
"""Number of forward operations whose places are remembered for backward passes."""


class emulate(Program, contextlib.ContextDecorator):
    """Compute every operation of torch code in the arithmetic of a policy: forward, backward and optimiser.

    As a context manager or a decorator; the code inside is that of any library, unchanged.

    Parameters
    ----------
    policy : Policy, MacSpec, str, or mapping
        One policy for all operations, such as ``"bf16*bf16+fp32.rn, elementwise=bf16.rn"``, or policies by patterns;
        the first match counts, and operations without a match stay in torch's own arithmetic. A pattern is a class of
        modules around an operation, a function of a `halfulp.golden.nn.Candidate`, or words of which all hold: patterns
        of module names, of operations such as ``aten.exp``, and phases (``@forward``, ``@backward``, ``@update``), with
        ``!`` to exclude: ``"encoder.* !*.norm aten.mul @backward"``. Parts of a composition are matched by their own
        names and by that of the composition, such as ``aten._softmax``; one that no pattern selects stays whole.
    strict : bool
        Raise RuntimeError for an operation that would be computed in torch's own arithmetic. Numbers that leave torch,
        by ``numpy()``, ``tolist()`` or ``item()``, are listed in the report and not refused.
    seed : int
        Seed of the random words of stochastic rounding. The words of an operation are a function of the seed, the
        operation, its operands, and the number of earlier uses of the same operation on equal operands.
    values : bool
        Count zeros, infinities and NaN among the results.

    Raises
    ------
    TypeError, ValueError
        If the policy or the seed is invalid.

    Notes
    -----
    Matrix products and convolutions have the order and the bits of `halfulp.golden.gemm`. Element-wise operations round
    their operands to the format, and their exact result once; integers that multiply or divide are exact, and means
    divide a sum in its accumulator by the exact count. Functions are correctly rounded in formats of up to 16
    bits; in wider formats a result in binary64, with an error of a few ulp of binary64, is rounded. Sums start from the
    first element. Compositions, such as softmax or a normalisation, are computed as torch decomposes them, and each
    part is rounded. Data movement, comparisons, random numbers and conversions between types of torch stay as they are.
    Attention and recurrent cells run as separate operations, without fused kernels and oneDNN. Recurrent layers have
    the bits and the rows of their operations, also where a whole layer is computed at once; second derivatives of such
    a layer, and gradients of weights that several calls in one graph share, sum their terms in another order. Other
    threads are not emulated.

    Delayed scaling has a history for each operand of each product in the call of a module, and outside of modules for
    each line of the program and operation. Modules in evaluation mode, and code outside of modules without gradients,
    do not change histories. They belong to the context, which a training run therefore enters for each step again;
    `state_dict` has them for checkpoints.
    """

    def __init__(self, policy: Rules, *, strict: bool = False, seed: int = 0, values: bool = False) -> None:
        super().__init__(policy, strict=strict, seed=seed, values=values)
        self._local = threading.local()
        self._histories: dict[str, Tensor] = {}
        self._roots: Any = WeakIdKeyDictionary()
        self._warned: set[Pattern] = set()

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Decorate a function; TypeError for a generator or a coroutine, whose code runs after the call."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("emulate decorates no generators: use the context manager around the code that runs them")
        if inspect.iscoroutinefunction(function):
            raise TypeError("emulate decorates no coroutines: use the context manager inside, without await in it")
        return super().__call__(function)

    @staticmethod
    def backend(policy: Rules, *, strict: bool = False, seed: int = 0, values: bool = False) -> "Backend":
        """Return a backend of `torch.compile` for the same arithmetic; parameters as for `emulate`.

        ``torch.compile(step, backend=emulate.backend(policy))`` computes forward and backward pass of a function in the
        bits of the context. The optimiser is outside of the graph: its step runs in a context.
        Code that torch.compile leaves out of its graphs runs in torch's own arithmetic; ``strict`` refuses it.
        """
        from .compiled import Backend

        return Backend(policy, strict=strict, seed=seed, values=values)

    def set_policy(self, policy: Rules) -> None:
        """Replace the policies, for later operations; `halfulp.golden.nn.Schedule` does so during a run."""
        self.policies = policies_of(policy)

    def history(self, name: str, length: int) -> Tensor:
        """Return the history of an operand, with a new length if the policy has another one."""
        history = self._histories.get(name)
        if history is None or len(history) != length:
            before = torch.zeros(0, dtype=torch.int64) if history is None else history[:length]
            history = self._histories[name] = torch.cat([before, before.new_zeros(length - len(before))])
        return history

    def name_of_root(self, module: nn.Module) -> str:
        """Return a name of a model: its class, with a number for a second model of this class."""
        if module not in self._roots:
            kind = type(module).__name__
            number = 1 + sum(type(root).__name__ == kind for root in self._roots)
            self._roots[module] = kind if number == 1 else f"{kind}:{number}"
        name: str = self._roots[module]
        return name

    def state_dict(self) -> dict[str, Tensor]:
        """Return the histories of delayed scaling by operand, for a checkpoint."""
        return {name: history.clone() for name, history in self._histories.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the histories."""
        self._histories = {name: history.clone() for name, history in state.items()}

    def __enter__(self) -> Self:
        if is_under_vmap():
            raise RuntimeError("vmap replaces operations before golden.emulate sees them: enter it around vmap")
        stacks = self._local.__dict__.setdefault("stacks", [])
        mode = self._local.__dict__.setdefault("mode", _Eager(self))
        with contextlib.ExitStack() as stack:
            if not stacks:
                stack.enter_context(composite())
                stack.enter_context(mode.tracking())
            stack.enter_context(mode)
            stacks.append(stack.pop_all())
        return self

    def __exit__(self, *error: Any) -> None:
        self._local.stacks.pop().__exit__(*error)
        if not self._local.stacks and error[:1] == (None,):
            self._warn_of_modules()

    def _warn_of_modules(self) -> None:
        """Warn once of each pattern of modules that has selected none, although modules have run."""
        new = [one for one in self.unused if of_modules(one) and one not in self._warned] if self._roots else []
        self._warned.update(new)
        if new:
            warnings.warn(
                f"halfulp: the pattern {shown(new[0])} selects no operation of the modules that ran: "
                f"{listed([name or 'the model' for root in self._roots for name in names_in(root).values()])}",
                RuntimeWarning,
                stacklevel=3,
            )


@dataclass
class _Call:
    """Running call of a module, or code outside of modules."""

    modules: tuple[str, ...] = ()
    """Names of the running modules, outermost first."""
    kinds: tuple[type, ...] = ()
    root: str = ""
    """Name of the model, the outermost module."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Names of the modules of the model."""
    training: bool = True
    region: "_Call | None" = None
    """Call around the region of `torch.utils.checkpoint` that is recomputed, in which the module was called."""
    backward_pass: int = -1
    """Backward pass in which the module was called."""
    products: int = 0
    """Number of products with delayed scaling."""

    @property
    def name(self) -> str:
        """Name of the model and of the module."""
        return f"{self.root}.{self.modules[-1]}"


class _Eager(Dispatch):
    """Dispatch of running code; the phase of an operation follows from autograd, optimisers and modules."""

    owner: emulate

    def __init__(self, owner: emulate) -> None:
        super().__init__(owner)
        self.calls: list[_Call] = []
        self.warned = False
        self.step: FrameType | None = None
        self.node: Any = None
        """Node of autograd that runs the operation; None in forward passes and in recomputed regions."""
        self.running = ""
        """Phase of the operation, once it is known."""
        self.places: dict[int, Place] = {}
        self.noted = -1
        """Last number of autograd with a place."""
        self.parameters: dict[int, int] = {}
        self.repeated: dict[int, int | None] = {}
        self.again: Place | None = None
        """Place of the layer whose forward operations a backward pass computes again; None outside of such passes."""

    @contextlib.contextmanager
    def tracking(self) -> Iterator[None]:
        """Track running modules and optimiser steps of this thread."""
        thread = threading.get_ident()
        self.noted = next_number() - 1

        def enter(module: nn.Module, _: Any) -> None:
            if threading.get_ident() == thread:
                if torch.compiler.is_exporting():
                    raise RuntimeError("torch.export has no meaning in golden.emulate: export the module outside of it")
                self.calls.append(self.called(module))

        def leave(*_: Any) -> None:
            if threading.get_ident() == thread and self.calls:
                self.calls.pop()

        def begin(optimizer: Any, arguments: Any, named: Any) -> Any:
            if threading.get_ident() != thread:
                return None
            self.check_updates(optimizer)
            self.step = frame = sys._getframe(1)

            def counted(closure: Any) -> Any:
                """Let a closure count as the forward and backward pass that it is."""

                @functools.wraps(closure)
                def run() -> Any:
                    self.step = None
                    try:
                        return closure()
                    finally:
                        self.step = frame

                return run if callable(closure) else closure

            return arguments[:1] + tuple(map(counted, arguments[1:])), {
                name: counted(argument) if name == "closure" else argument for name, argument in named.items()
            }

        def end(*_: Any) -> None:
            if threading.get_ident() == thread:
                self.step = None

        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
            register_optimizer_step_pre_hook(begin),
            register_optimizer_step_post_hook(end),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.calls, self.step = [], None

    def called(self, module: nn.Module) -> _Call:
        """Return the call of a module from the running code."""
        region = around(self.innermost)
        outer = self.innermost(region)
        if outer.modules:
            root, names = outer.root, outer.names
        else:
            root, names = self.owner.name_of_root(module), names_in(module)
        name = names.get(id(module), type(module).__name__)
        where = (*outer.modules, name), (*outer.kinds, type(module))
        return _Call(*where, root, names, getattr(module, "training", False), region, backward_pass())

    def innermost(self, region: _Call | None) -> _Call:
        """Return the innermost running call; ``region`` is that around a region that is recomputed."""
        last = self.calls[-1] if self.calls else _Call()
        return last if region is None or last.region is region else region

    def check_updates(self, optimizer: torch.optim.Optimizer) -> None:
        """Warn once of updates in the policies if the optimiser has none."""
        if not (lacking := lacks_update(optimizer)):
            self.owner.used |= {"update", "master"}
        updates = dict.fromkeys(
            str(policy.update) for policy in self.owner.policies.values() if policy.update is not None
        )
        if updates and not self.warned and lacking:
            self.warned = True
            warn_of_update(", ".join(updates))

    def note_operands(self, args: Any) -> None:
        """Note the running node of autograd and storages of parameters; RuntimeError in a recording of operations."""
        if is_recording():
            raise RuntimeError(
                "make_fx and torch.func.linearize cannot record operations of golden.emulate; use torch.func.jvp, or "
                "torch.compile with golden.emulate.backend"
            )
        node = running_node()
        forward = self.again or (self.calls and self.calls[-1].backward_pass == backward_pass())
        self.node = None if node is None or forward or repeats() else node
        self.running = ""
        for argument in args:
            if isinstance(argument, nn.Parameter) and argument.layout is torch.strided:
                self.parameters[argument.untyped_storage().data_ptr()] = argument.untyped_storage().nbytes()

    def note_result(self, result: Any) -> None:
        """Note the results of recomputed regions."""
        repeated = self.node is None and running_node() is not None
        if repeated and isinstance(result, Tensor) and result.layout is torch.strided:
            self.repeated.setdefault(address(result), None)

    def phase(self) -> str:
        """Return ``forward``, ``backward`` or ``update``."""
        if not self.running:
            self.running = UPDATE if self._steps() else "forward" if self.node is None else "backward"
        return self.running

    def _steps(self) -> bool:
        """Return True inside the step of the optimiser; a step that raised an exception runs no longer."""
        if self.step is None:
            return False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self.step:
            frame = frame.f_back
        if frame is None:
            self.step = None
        return frame is not None

    def place(self) -> Place:
        """Return the place of the operation, in a backward pass that of the forward one."""
        if self.node is not None and (known := self.places.get(number_of_node(self.node))):
            return known
        if self.again is not None:
            return Place(self.again.module, self.again.source, self.again.kinds)
        return self.here()

    def here(self) -> Place:
        """Return the place of the running code."""
        call = self.innermost(around(self.innermost))
        return Place(call.modules[-1] if call.modules else "", _source(), call.kinds)

    def recurrent(self, name: str, given: Any) -> Any:
        """Compute recurrent layers; NotImplemented if their operations have to be separate."""
        return layers(self, name, given)

    @contextlib.contextmanager
    def repeated_at(self, place: Place, policies: dict[Any, Policy]) -> Iterator[None]:
        """Compute forward operations of a place again, in the policies of the forward pass, without counting them."""
        owner, before = self.owner, (self.owner.policies, self.owner._report)
        owner.policies, owner._report, self.again = policies, Report(), place
        try:
            yield
        finally:
            (owner.policies, owner._report), self.again = before, None

    def note_place(self, place: Place) -> None:
        """Note the place of a forward operation."""
        if self.node is None:
            if len(self.places) > PLACES:
                self.places = dict(list(self.places.items())[PLACES // 2 :])
            # Autograd numbers an operation before it runs; operations without gradients follow under the same number.
            # Each transform of torch.func has a node of its own, numbered before that of autograd.
            last = next_number() - 1
            for number in range(max(self.noted + 1, last - TRANSFORMS), last + 1):
                self.places.setdefault(number, place)
            self.noted = last

    def note_exact(self) -> None:
        """Note the place of a running operation that changes no number."""
        if self.node is None and torch.is_grad_enabled():
            self.note_place(self.place())

    def draw(self, operation: str, operands: list[Tensor]) -> int:
        """Return a new key of random words; in a recomputed region, that of the first pass."""
        make = functools.partial(self.owner.keys.next, operation, operands)
        # Recomputed regions may leave out operations; their keys belong to an operation on operands of these shapes.
        owner = hash((self.owner.seed, operation, *(operand.shape for operand in operands)))
        key: int = make() if self.node is not None else of_use(owner, make)
        return key

    def site(self, policy: Policy, base: str, place: Place, draw: Callable[[], int]) -> Site:
        """Return the site of the operation, and note its place for the backward pass."""
        self.note_place(place)
        return Site(
            *(policy, base, self.phase(), place, self.node, draw),
            *(self.owner.record, self._is_weight, self.repeated, self._delayed),
            note=self.owner.note_constant,
        )

    def _delayed(self, site: Site, role: str, values: Tensor, length: int) -> Tensor:
        """Return the delayed amax of an operand; its history is named by the module and the number of the product."""
        place = site.place

        def named_amax() -> tuple[Tensor, str, bool]:
            name, training = place.history, place.training
            if not name and self.calls and site.node is None:
                self.calls[-1].products += 1
                name, training = f"{self.calls[-1].name} {self.calls[-1].products}", self.calls[-1].training
            elif not name:
                training = site.node is not None or torch.is_grad_enabled()
                name = f"{place.source} {site.operation}"
            if not length:
                return torch.zeros((), dtype=torch.float64), name, training
            return delayed(self.owner.history(f"{name} {role}", length), values, training), name, training

        amax: Tensor
        amax, place.history, place.training = (
            named_amax() if role == "gradient" else of_use(ROLES.index(role), named_amax)
        )
        return amax

    def _is_weight(self, x: Tensor) -> bool:
        storage = x.untyped_storage()
        return self.parameters.get(storage.data_ptr()) == storage.nbytes()


def _source() -> str:
    """Return file and line of the program that called torch."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if outside(path):
            return f"{Path(path).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]  # None at the bottom of the stack
    return ""
