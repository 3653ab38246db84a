"""Dispatch of the operations of a program to their arithmetic."""

import contextlib
import functools
import math
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from halfulp.golden.function_table import FUNCTIONS
from halfulp.golden.nn.cast import DTYPES, PolicyError
from halfulp.golden.nn.policy import Policy
from halfulp.golden.nn.select import Candidate
from halfulp.golden.torch_internals import (
    TorchDispatchMode,
    current_dispatch_mode,
    is_under_func,
    replaced_recurrent_functions,
    schema,
    scripted_as,
    tree_leaves,
    tree_map_only,
    without_mkldnn,
)

from . import products
from .arithmetic import ARITHMETIC, CHAINS, chained
from .cells import CELLS
from .compositions import compositions
from .loops import loops, note_generator
from .operations import EXACT, FILLS, HANDLERS, SEQUENCES
from .program import Program
from .report import ELEMENTWISE, IN_TORCH, NO_PATTERN, PRODUCT, UPDATE, Report, is_real, names_no
from .site import Place, Site, outside

_compositions = functools.cache(compositions)


@functools.cache
def name_of(func: Any) -> tuple[str, bool]:
    """Return the name of an operation without the mark of operations in place, and True for these."""
    name: str = func.overloadpacket.__name__
    in_place = name.endswith("_") and not name.endswith("__")
    return name.removesuffix("_") if in_place else name, in_place


@functools.cache
def outs_of(func: Any) -> tuple[str, ...]:
    """Return the names of the arguments that are tensors for results, such as ``out``."""
    return tuple(argument.name for argument in schema(func).arguments if argument.is_out)


@functools.cache
def functional(func: Any) -> Any:
    """Return the overload of an operation that computes the same and changes no operand; itself without one."""
    packet = getattr(getattr(torch.ops, func.namespace), name_of(func)[0], None)
    if packet is None or not schema(func).is_mutable:
        return func
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next(
        (overload for overload in overloads if not schema(overload).is_mutable and _types(overload) == _types(func)),
        func,
    )


def _types(func: Any) -> list[str]:
    return [str(argument.type) for argument in schema(func).arguments if not argument.is_out]


_EXACT = frozenset(name for names in EXACT.values() for name in names.split())


@functools.cache
def is_exact(func: Any) -> bool:
    """Return True for an overload of an operation that rounds nothing."""
    if func.is_view or torch.Tag.inplace_view in func.tags:
        return True
    if "c10d" in func.namespace:
        return "reduce" not in func.overloadpacket.__name__
    name = str(functional(func)).removesuffix(".default")
    # Without operands, torch has overloads with ``out`` only for tensors that are there.
    names = {name, name.removesuffix(".out"), name.removesuffix("_out")}
    return func.namespace in ("aten", "prims") and not _EXACT.isdisjoint(
        overload.partition(".")[2] for overload in names
    )


def overlaps(operands: Sequence[Any]) -> bool:
    """Return True if an operation in place writes to memory that it reads as another operand, or writes to it twice."""
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    if not tensors:
        return False
    into, *others = tensors
    memory = into.untyped_storage().data_ptr()
    repeats = any(step == 0 and size > 1 for size, step in zip(into.shape, into.stride(), strict=True))
    return (repeats and into.numel() > 0) or any(
        tensor is not into and tensor.untyped_storage().data_ptr() == memory for tensor in others
    )


CHECKS_VALUES = frozenset(
    ["binary_cross_entropy", "huber_loss", "multi_margin_loss", "multilabel_margin_loss_forward", "smooth_l1_loss"]
)
"""Compositions that refuse some values in torch; their parts do not."""

_CHECKED: set[Any] = set()
"""Operations with the shapes, types and numbers of arguments that torch accepts."""

CHECKED = 1 << 16
"""Largest number of these."""


def check(func: Any, args: Any, kwargs: Any) -> None:
    """Run an operation in torch once for each kind of arguments; it raises torch's errors."""
    kind = (func, _kind(args), _kind(tuple(kwargs.items())))
    if kind not in _CHECKED:
        func(*args, **kwargs)
        if len(_CHECKED) >= CHECKED:
            _CHECKED.clear()
        _CHECKED.add(kind)


def _kind(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    # Real numbers change from step to step, and torch accepts all of them.
    return float if isinstance(value, float) else value


def rehearsed(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation of torch on copies of its operands, which share memory as these do; it raises torch's errors."""
    memories: dict[int, tuple[Any, Any]] = {}
    """Memory of operands and its copy, by the id of the memory, which it has while it is here."""

    def copied(x: Tensor) -> Tensor:
        memory = x.untyped_storage()
        if id(memory) not in memories:
            memories[id(memory)] = memory, memory.clone()
        made = torch.empty(0, dtype=x.dtype, device=x.device)
        return made.set_(memories[id(memory)][1], x.storage_offset(), x.size(), x.stride())

    copies = tree_map_only(Tensor, copied, (args, kwargs))
    return func(*copies[0], **copies[1])


def _not_emulated(args: Any) -> str:
    """Return the reason why no operation on these arguments is emulated; empty for dense tensors of real numbers."""
    for argument in args:
        if isinstance(argument, Tensor):
            if argument.layout is not torch.strided:
                return "halfulp does not emulate sparse tensors"
            if argument.dtype.is_complex:
                return "halfulp does not emulate complex numbers"
    return ""


class _Composite:
    """State of torch's fused kernels, which all threads share."""

    lock = threading.Lock()
    users = 0
    restore = contextlib.ExitStack()


@contextlib.contextmanager
def composite() -> Iterator[None]:
    """Turn off vmap and the fused kernels of attention, encoders and cells, which a dispatch mode does not see.

    Products with a bias stay whole under transforms of torch.func.
    """
    with _Composite.lock:
        _Composite.users += 1
        if _Composite.users == 1:
            stack = _Composite.restore
            stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)
            stack.enter_context(without_mkldnn())
            stack.enter_context(replaced_recurrent_functions(CELLS, _layers))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(mock.patch.object(F, "linear", _linear))
            for kind, name in ARRAYS:
                stack.enter_context(mock.patch.object(kind, name, _leaving(getattr(kind, name), _add_array)))
            for name in NUMBERS:
                stack.enter_context(mock.patch.object(Tensor, name, _leaving(getattr(Tensor, name), _add_numbers)))
            for name in ("trace", "trace_module"):
                stack.enter_context(mock.patch.object(torch.jit, name, _untraced(getattr(torch.jit, name))))
            stack.enter_context(loops(lambda: isinstance(current_dispatch_mode(), Dispatch)))
    try:
        yield
    finally:
        with _Composite.lock:
            _Composite.users -= 1
            if not _Composite.users:
                _Composite.restore.close()


_LINEAR = F.linear


def _linear(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply rows by a matrix: torch.func adds the bias of a vector, or of 4 dimensions, apart from the product."""
    apart = bias is not None and is_under_func() and x.dim() not in (0, 2, 3)
    if apart and isinstance(current_dispatch_mode(), Dispatch):
        return _LINEAR(x.reshape(-1, x.shape[-1]), w, bias).reshape(*x.shape[:-1], len(w))
    return _LINEAR(x, w, bias)


scripted_as(_LINEAR, _linear)


ARRAYS = ((Tensor, "numpy"), (Tensor, "__dlpack__"), (torch.UntypedStorage, "__iter__"))
"""Functions by which numbers leave torch as arrays or bytes."""

NUMBERS = ("item", "tolist", "__float__", "__int__")
"""Methods of tensors by which numbers leave torch as those of Python."""


def _leaving(convert: Callable[..., Any], add: Callable[[Report, str, Any], None]) -> Callable[..., Any]:
    """Return a conversion that reports by ``add`` where numbers leave torch."""

    @functools.wraps(convert)
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        mode = current_dispatch_mode()
        # A storage does not know the type of its numbers.
        if isinstance(mode, Dispatch) and (is_real(x) or not isinstance(x, Tensor)):
            add(mode.owner.report(), mode.place().source, x)
        return convert(x, *args, **kwargs)

    return run


def _add_array(report: Report, source: str, _: Any) -> None:
    report.add_array(source)


def _add_numbers(report: Report, source: str, x: Tensor) -> None:
    # Optimisers, and the text of a tensor, take numbers too.
    if outside(sys._getframe(2).f_code.co_filename):
        report.add_numbers(source, x.numel())


def _untraced(trace: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that refuses to record a program of which a dispatch mode computes the operations."""

    @functools.wraps(trace)
    def run(*args: Any, **kwargs: Any) -> Any:
        if isinstance(current_dispatch_mode(), Dispatch):
            raise RuntimeError(
                "torch.jit.trace has no meaning in golden.emulate: trace outside of it, or use torch.jit.script"
            )
        return trace(*args, **kwargs)

    return run


@functools.cache
def _layers(name: str, in_torch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of torch for recurrent layers that a dispatch mode may compute as a whole."""

    def run(*given: Any) -> Any:
        mode = current_dispatch_mode()
        result = mode.recurrent(name, given) if isinstance(mode, Dispatch) else NotImplemented
        return in_torch(*given) if result is NotImplemented else result

    return scripted_as(in_torch, run)


def wraps(kind: Any) -> bool:
    """Return True for a type of tensors that wrap others."""
    return kind.__torch_dispatch__ is not Tensor.__torch_dispatch__


def _lacks_values(value: Any) -> bool:
    """Return True for a tensor of the device ``meta``, or a list with one."""
    if isinstance(value, (list, tuple)):
        return any(map(_lacks_values, value))
    return type(value) in (Tensor, nn.Parameter) and value.is_meta


def _is_nested(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_nested


class Dispatch(TorchDispatchMode):
    """Dispatch of all operations below autograd. A subclass knows place and phase of the running operation."""

    def __init__(self, owner: Program) -> None:
        super().__init__()
        self.owner = owner
        self.composition = ""
        """Name of the composition whose parts are running."""

    @abstractmethod
    def place(self) -> Place:
        """Return the place of the running operation."""

    @abstractmethod
    def phase(self) -> str:
        """Return the phase of the running operation."""

    @abstractmethod
    def draw(self, operation: str, operands: list[Tensor]) -> int:
        """Return a new key of random words for the running operation on real operands."""

    @abstractmethod
    def site(self, policy: Policy, base: str, place: Place, draw: Callable[[], int]) -> Site:
        """Return the site of the running operation; ``draw`` returns a new key of random words."""

    def note_place(self, place: Place) -> None:
        """Note the place of the running operation for its backward pass."""

    def note_exact(self) -> None:
        """Note the place of a running operation that changes no number."""

    def note_operands(self, args: Any) -> None:
        """Note the arguments of an operation."""

    def note_result(self, result: Any) -> None:
        """Note the result of an operation."""

    def recurrent(self, name: str, given: Any) -> Any:
        """Compute recurrent layers; NotImplemented if their operations have to be separate."""
        return NotImplemented

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(wraps, types)) and not any(map(_is_nested, args)):
            # A tensor that wraps others, such as a distributed one, unwraps them first.
            return NotImplemented
        inner = _RUNNING.__dict__.get("dispatch")
        if inner is not None and inner is not self:
            # An inner context computes this operation.
            return func(*args, **(kwargs or {}))
        _RUNNING.dispatch = self
        try:
            return self._dispatched(func, args, kwargs or {})
        finally:
            _RUNNING.dispatch = inner

    def _dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        base, in_place = name_of(func)
        self.note_operands(args)
        if kwargs.get("generator") is not None:
            note_generator(kwargs["generator"])
        if any(map(_lacks_values, args)):
            # Without values, only the shape of the result is computed.
            return func(*args, **kwargs)
        if is_exact(func):
            # Their backward operations may compute, such as the sum of expand.
            self.note_exact()
            if base in FILLS:
                self._note_fills(base, args, kwargs)
            return func(*args, **kwargs)
        if any(map(_is_nested, args)):
            # Operators of Python replace a TypeError by one of their own.
            raise PolicyError(f"golden.emulate computes no {base} of nested tensors; pad them outside of it")
        if not any(map(is_real, args)) and not any(is_real(leaf) for leaf in tree_leaves((args, kwargs))):
            result = func(*args, **kwargs)
            # Numbers and integers may have real results, such as quotients.
            drawn = torch.Tag.nondeterministic_seeded in func.tags
            if drawn or not any(map(is_real, tree_leaves(result))):
                return result
            if base in SEQUENCES and torch.equal(result, result.round()):
                return result
        if func.namespace == "halfulp" and base not in HANDLERS:
            return self._layer(func, base, args, kwargs)
        if base.startswith("_foreach_"):
            return self._each(func, base.removeprefix("_foreach_"), in_place, args, kwargs)
        return self._emulated(func, base, in_place, args, kwargs)

    def _emulated(self, func: Any, base: str, in_place: bool, args: Any, kwargs: Any) -> Any:
        """Compute an operation in the formats of the policy, or else by torch, and write the result to its place."""
        outs = {name: kwargs[name] for name in outs_of(func) if name in kwargs}
        given = {name: value for name, value in kwargs.items() if name not in outs}
        reason = _not_emulated(args)
        # Torch refuses some operands that share memory, and chooses the strides of tensors for results.
        rehearses = not reason and (outs or (in_place and overlaps(args)))
        shown = rehearsed(func, args, kwargs) if rehearses else None
        result = NotImplemented if reason else self._computed(func, base, in_place, args, given)
        self.note_result(result)
        if result is NotImplemented:
            return self._in_torch(func, base, args, kwargs, reason)
        if outs:
            written = zip(outs.values(), tree_leaves(result), tree_leaves(shown), strict=True)
            made = tuple(_write(*parts) for parts in written)
            return made if len(made) > 1 else made[0]
        if in_place and result is not args[0]:
            if result.shape != args[0].shape or result.dtype != args[0].dtype:
                rehearsed(func, args, kwargs)
            args[0].copy_(result)
            return args[0]
        return result

    def _note_fills(self, base: str, args: Any, kwargs: Any) -> None:
        """Note numbers in tensors that later roundings of the policy replace by 0, 1, an infinity or NaN."""
        numbers = [number for number in (*args, *kwargs.values()) if type(number) is float and math.isfinite(number)]
        place = self.place() if numbers else None
        policy = None if place is None else self._policy(place, base)
        if policy is not None and place is not None:
            site = self.site(policy, base, place, lambda: 0)
            if (cast := site.numbers) is not None:
                site.note_constants(base, cast, numbers)

    def _policy(self, place: Place, base: str) -> Policy | None:
        operations = tuple(f"aten.{name}" for name in (base, self.composition) if name)
        return self.owner.policy_for(Candidate((place.module,), place.kinds, operations, self.phase()))

    def _computed(self, func: Any, base: str, in_place: bool, args: Any, kwargs: Any) -> Any:
        """Compute an operation by its function or its decomposition; NotImplemented without either."""
        place = self.place()
        policy = self._policy(place, base)
        if policy is None or self._runs_in_torch(policy):
            return NotImplemented
        if base in HANDLERS and func.namespace in ("aten", "prims", "halfulp"):
            # Operands of element-wise operations only have to broadcast. Operations that write are rehearsed on copies.
            plain = functional(func)
            if not schema(plain).is_mutable and (kwargs or (base not in ARITHMETIC and base not in FUNCTIONS)):
                check(plain, args, kwargs)
            site = self.site(policy, base, place, lambda: self._draw(base, args, kwargs))
            if in_place and base in ARITHMETIC and not kwargs and args[0].is_contiguous():
                site.into = args[0]
            result = HANDLERS[base](site, *args, **kwargs)
            if result is not NotImplemented:
                return result
        if base in CHAINS and not kwargs and (result := self._chained(policy, base, args)) is not None:
            return result
        if base in CHECKS_VALUES:
            func(*args, **kwargs)  # raises torch's error
        return self._decomposed(functional(func), base, args, kwargs)

    def _draw(self, base: str, args: Any, kwargs: Any) -> int:
        """Return a new key of random words for an operation; 0 if no policy needs any."""
        if not self.owner.stochastic:
            return 0
        given = tree_leaves((args, kwargs))
        return self.draw(
            base, [operand for operand in given if isinstance(operand, Tensor) and operand.dtype in DTYPES]
        )

    def _decomposed(self, func: Any, base: str, args: Any, kwargs: Any) -> Any:
        """Compute the parts of an operation; NotImplemented if it has none."""
        decomposed = _compositions().get(func, func.decompose)
        outer, self.composition = self.composition, self.composition or base
        try:
            with self:
                return decomposed(*args, **kwargs)
        finally:
            self.composition = outer

    def _chained(self, policy: Policy, base: str, args: Any) -> Tensor | None:
        """Compute a composition of `CHAINS` at once, and count its parts; None if they have to be separate."""
        started, cast = time.perf_counter(), policy.rounding_of("mul")
        # Patterns may give the parts different policies, and the values of each part are counted.
        apart = policy.replaces or self.owner.values or self.owner.policies.keys() != {"*"}
        if cast is None or apart or self.phase() == UPDATE:
            return None
        result = chained(base, args[0], args[1], cast)
        if result is not None:
            share = (time.perf_counter() - started) / len(CHAINS[base])
            for name, *_ in CHAINS[base]:
                site = self.site(policy, base, self.place(), lambda: 0)
                site.count_element(name, str(cast), result, time.perf_counter() - share)
        return result

    def _runs_in_torch(self, policy: Policy) -> bool:
        """Return True for an operation of an optimiser that the policy leaves to torch."""
        return self.phase() == UPDATE and policy.optimizer is None

    def _in_torch(self, func: Any, base: str, args: Any, kwargs: Any, reason: str = "") -> Any:
        """Compute an operation in torch's own arithmetic, and count it."""
        started = time.perf_counter()
        place = self.place()
        policy = self._policy(place, base)
        if policy is None:
            reason = NO_PATTERN
        elif self._runs_in_torch(policy):
            reason = names_no("optimizer")
        elif not reason:
            reason = f"halfulp does not emulate {func.namespace}.{base}"
        where = {"operation": base, "kind": ELEMENTWISE, "arithmetic": IN_TORCH, "reason": reason}
        where |= {"module": place.module, "source": place.source, "phase": self.phase()}
        self.owner.refuse(where)
        self.note_place(place)
        results = func(*args, **kwargs)
        real = (leaf for leaf in tree_leaves(results) if is_real(leaf))
        result = next((tensor for tensor in real if tensor.layout is torch.strided), None)
        if result is not None:
            macs = products.macs(base, args, result)
            kind = {"kind": PRODUCT} if macs else {}
            counts = {"macs": macs, "elements": result.numel()}
            self.owner.record(where | kind, counts, result, time.perf_counter() - started)
        return results

    def _layer(self, func: Any, base: str, args: Any, kwargs: Any) -> Any:
        """Compute an operation of a converted layer, whose arithmetic is its own."""
        started, place = time.perf_counter(), self.place()
        results = func(*args, **kwargs)
        result = next((leaf for leaf in tree_leaves(results) if is_real(leaf) and leaf.numel()), None)
        arithmetic = next((argument for argument in args if isinstance(argument, str) and argument), None)
        # Operators without arithmetic read the state of a layer.
        if result is not None and arithmetic is not None:
            where = {"module": place.module, "source": place.source, "phase": self.phase(), "operation": base}
            where |= {"kind": PRODUCT, "arithmetic": arithmetic}
            counts = {"macs": products.layer_macs(base, args, result), "elements": result.numel()}
            self.owner.record(where, counts, result, time.perf_counter() - started)
        return results

    def _each(self, func: Any, base: str, in_place: bool, args: Any, kwargs: Any) -> Any:
        """Compute an operation on lists of tensors, one after the other."""
        base = "linalg_vector_norm" if base == "norm" else base
        packet = getattr(torch.ops.aten, base + "_" * in_place, None) or getattr(torch.ops.aten, base, None)
        if packet is None:
            return self._in_torch(func, f"_foreach_{base}", args, kwargs)
        if base == "linalg_vector_norm" and len(args) > 2:
            *args, kwargs["dtype"] = args
        if base in ("addcmul", "addcdiv") and len(args) > 3:
            # Only in lists this factor has no name.
            *args, kwargs["value"] = args
        results = []
        for place in range(len(args[0])):
            arguments = [_item(given, place) for given in args]
            with self:
                made = packet(*arguments, **{name: _item(given, place) for name, given in kwargs.items()})
            results.append(arguments[0].copy_(made) if in_place and made is not arguments[0] else made)
        return None if in_place else results


_RUNNING = threading.local()
"""The dispatch that computes an operation in this thread, as attribute ``dispatch``."""


def _item(given: Any, place: int) -> Any:
    return given[place] if isinstance(given, (list, tuple)) else given


def _write(out: Tensor, result: Tensor, shown: Tensor) -> Tensor:
    """Write a result to a tensor for it, which gets the shape and the strides that torch gives it."""
    if out.shape != result.shape:
        out.resize_(result.shape).as_strided_(shown.shape, shown.stride())
    return out.copy_(result)
