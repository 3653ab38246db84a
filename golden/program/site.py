"""One operation of an emulated program: its place, phase and arithmetic, and the primitives that compute it."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halfulp.golden.check import broadcast_shape
from halfulp.golden.function_table import FUNCTIONS, TABLE_WIDTH
from halfulp.golden.nn.amax import ROLES
from halfulp.golden.nn.cast import DTYPES, Cast, PolicyError, check_holds, check_holds_results
from halfulp.golden.nn.draw import mix
from halfulp.golden.nn.operands import Call
from halfulp.golden.nn.policy import Policy
from halfulp.golden.operators import Operator
from halfulp.golden.torch_internals import COMPILED, backward_pass, running_node
from halfulp.golden.values import decoded
from halfulp.hdl.formats import FP32, RN, Format
from halfulp.hdl.specs import MacSpec

from . import products, report
from .arithmetic import ARITHMETIC, became, compute, in_binary64, is_held, rounded
from .report import UPDATE

_HERE = (Path(__file__), Path(__file__).resolve())
_OURS = (str(Path(torch.__file__).parent), *(str(path.parents[1]) for path in _HERE), "<eval", "<frozen")
"""Path prefixes of files outside the emulated program."""


@dataclass
class Place:
    """Place of an operation in a program; a backward pass has that of the forward one."""

    module: str
    source: str
    kinds: tuple[type, ...] = ()
    """Classes of the running modules, the outermost one first."""
    key: int | None = None
    """Key of the random words of the forward product; its gradients round the same operands by the same words."""
    factors: tuple[int, int] = (0, 0)
    """Numbers by `address` of the two factors of a product; in its gradients the other operand is the gradient."""
    weight: int | None = None
    """Index of the factor that is a parameter, if one is."""
    history: str = ""
    """Name of the histories of its operands."""
    amax: dict[str, Tensor] = field(default_factory=dict)
    """Largest magnitudes of the histories of operands by role."""
    training: bool = True
    """False if the histories do not change."""
    backward_pass: int = -1
    """Number of the backward pass whose gradient is in ``amax``."""


@dataclass
class Product:
    """Product in progress, counted by `done`."""

    site: "Site"
    phase: str
    macs: int
    started: float = field(default_factory=time.perf_counter)

    def call(self, operands: Mapping[str, Tensor]) -> Call:
        """Return the arithmetic of the product of operands by role, for layers' products."""
        return Call(self.site.policy, self.key, self.site.place.module, self.site.paired, self.amax(operands))

    @property
    def key(self) -> int:
        """Key of the random words of the product; a forward product saves it for its gradients."""
        place = self.site.place
        key = self.site.key if place.key is None else place.key
        if self.site.phase != "backward":
            place.key = key
        return key

    def amax(self, operands: Mapping[str, Tensor]) -> Tensor | None:
        """Return the delayed amax of operands by role; None without delayed scaling.

        A backward pass has those of the forward one, and for the gradient one of its own.
        """
        lengths = dict(zip(ROLES, self.site.policy.histories(self.site.paired), strict=True))
        if not any(lengths.values()):
            return None
        place, known = self.site.place, self.site.place.amax
        if "gradient" in operands and place.backward_pass != (task := backward_pass()):
            place.backward_pass = task
            known.pop("gradient", None)
        for role, values in operands.items():
            # Forward operands without delayed scaling name the history of the gradient.
            if role not in known and self.site.delay is not None:
                known[role] = self.site.delay(self.site, role, values, lengths[role])
        return torch.stack([known.get(role, torch.zeros((), dtype=torch.float64)) for role in ROLES])

    def done(self, result: Tensor, pruned: int) -> Tensor:
        """Count the product; masks made ``pruned`` elements of its operands zero."""
        policy = self.site.policy
        arithmetic = None if getattr(policy, self.phase) is None else policy.product(self.phase)
        reason = "" if arithmetic else f"{report.HAS_FP32}{self.phase}"
        counts = {"macs": self.macs, "pruned": pruned}
        self.site.count(report.PRODUCT, arithmetic, reason, result, self.started, self.phase, counts=counts)
        return result


@dataclass
class Site:
    """One operation of a program.

    Attributes
    ----------
    policy : Policy
    operation : str
        Name in torch.
    phase : str
        ``forward``, ``update``, or ``backward``.
    place : Place
    node : object
        Node of autograd that runs the operation in a backward pass.
    draw : callable
        Returns a new key of random words.
    record : callable
        Adds a call to the report, or refuses it.
    weights : callable
        True for a tensor of parameters.
    repeated : dict
        Addresses of results in recomputed regions, with the index of each that is a factor of a product.
    delay : callable
        Returns the largest magnitude in the history of an operand, from site, role, operand and length of the history,
        and adds that of the operand to it.
    """

    policy: Policy
    operation: str
    phase: str
    place: Place
    node: Any
    draw: Callable[[], int]
    record: Callable[..., None]
    weights: Callable[[Tensor], bool]
    repeated: dict[int, int | None]
    delay: Callable[["Site", str, Tensor, int], Tensor] | None = None
    paired: bool = False
    used: int = 0
    drawn: int | None = None
    """Key of the random words, once an operation has drawn it."""
    into: Tensor | None = None
    """Operand that an operation in place changes, if it is computed at once."""
    note: Callable[[Mapping[str, str], float, float], None] = lambda *_: None
    """Adds a constant to the report: place and operation, its value, and what its format made of it."""

    @property
    def key(self) -> int:
        """Key of the random words of the operation."""
        # The lock of cached_property would stay locked in a process that is forked while another thread holds it.
        if self.drawn is None:
            self.drawn = self.draw()
        return self.drawn

    def next_key(self, cast: Cast | MacSpec | None) -> int:
        """Return a new key of random words for the roundings of a primitive; 0 if they need none."""
        if cast is None or not cast.rounding.bits:
            return 0
        self.used += 1
        return mix(self.key, self.used)

    def count(
        self,
        kind: str,
        arithmetic: str | None,
        reason: str,
        result: Tensor,
        started: float,
        phase: str | None = None,
        *,
        counts: Mapping[str, int] | None = None,
        operation: str | None = None,
    ) -> None:
        """Count a primitive; ``arithmetic`` is None for torch's own. A reason tells why the policy is not followed."""
        where = self._where(operation or self.operation, arithmetic or report.IN_TORCH, phase)
        where |= {"kind": kind, "reason": reason}
        self.record(where, {"elements": result.numel(), **(counts or {})}, result, time.perf_counter() - started)

    def product(self, phase: str, macs: int) -> Product:
        """Begin a product."""
        return Product(self, phase, macs)

    def roles(self, a: Tensor, b: Tensor) -> tuple[str, tuple[str, str], bool]:
        """Find the phase of a matrix product, the roles of its operands, and if they are to be exchanged.

        In a backward pass the operand that is no factor of the forward product is the gradient. Gradients come first,
        and weights second, as in layers.
        """
        places = address(a), address(b)
        if self.node is None:
            self.place.factors = places
            if running_node() is not None:
                self.repeated.update(zip(places, (0, 1), strict=True))
            swapped = self.weights(a) and not self.weights(b)
            self.paired = not self.weights(a) and not self.weights(b)
            self.place.weight = None if self.paired else 0 if swapped else 1
            return "forward", ("x", "w"), swapped
        turns = [self._turn(place) for place in places]
        swapped = turns[0] is not None and turns[1] is None
        other, turn = (a, turns[0]) if swapped else (b, turns[1])
        if self.weights(other):
            return "input_gradient", ("gradient", "w"), swapped
        if turn == 0 or self.place.weight is not None:
            return "weight_gradient", ("gradient", "x"), swapped
        self.paired = True
        return "input_gradient", ("gradient", "w"), swapped

    def _turn(self, place: int) -> int | None:
        """Return the index of the factor at an address, recomputed factors included; None for other tensors."""
        if place in self.place.factors:
            return self.place.factors.index(place)
        return (self.repeated[place] or 0) if place in self.repeated else None

    def arithmetic(self, name: str) -> Cast | None:
        """Return format and rounding of an element-wise operation or function, or None for torch's own arithmetic."""
        if self.phase == UPDATE:
            return self.policy.optimizer
        return self.policy.rounding_of(name)

    def average(self, sums: Tensor, count: Any) -> Tensor:
        """Divide sums by a count: neither is rounded to the format of the operation before the quotient is."""
        return self.element("div", sums, count, exact=(0, 1))

    def element(self, name: str, *operands: Any, exact: tuple[int, ...] = ()) -> Tensor:
        """Compute an element-wise operation or a function; ``exact`` are places of operands that are not rounded.

        Integers that multiply or divide are exact, because they are counts.
        """
        started = time.perf_counter()
        cast = self.arithmetic(name)
        dtype = _result_dtype(name, operands)
        kind = report.ELEMENTWISE if name in ARITHMETIC else report.FUNCTION
        # Quotients of exact sums and counts are no operation of the program.
        own = None if exact or self.phase == UPDATE or dtype not in DTYPES else self.policy.operator_of(name)
        if own is not None:
            return self._replaced(own, name, operands, dtype)
        if cast is None or dtype not in DTYPES:
            reason = f"{dtype} is no type of real numbers" if cast else report.names_no(self._missing)
            result = _in_torch(name, operands)
            self.count(kind, None, reason, result, started, operation=name)
            return result
        result, text = self._in_cast(name, operands, cast, dtype, exact)
        self.count_element(name, text, result, started)
        return result

    def _in_cast(
        self, name: str, operands: tuple[Any, ...], cast: Cast, dtype: torch.dtype, exact: tuple[int, ...]
    ) -> tuple[Tensor, str]:
        """Compute an operation in the format of a cast; return its result and the arithmetic for the report."""
        assert cast.fmt is not None
        text = str(cast)
        into = self._into(operands, dtype)
        counts = tuple(place for place, operand in enumerate(operands) if is_exact_count(name, operand, cast.fmt))
        if len(exact) < len(operands):
            self.note_constants(
                name, cast, [operand for place, operand in enumerate(operands) if place not in exact + counts]
            )
        if name in ARITHMETIC and not counts and _is_native(cast, operands, dtype):
            given = tuple(_tensor(operand) for operand in operands)
            result = _in_torch(name, given) if into is None else getattr(torch, name)(*given, out=into)
        else:
            correct = name in ARITHMETIC or (name in FUNCTIONS and cast.fmt.width <= TABLE_WIDTH)
            text += "" if correct else " of binary64"
            result = compute(name, operands, cast, self.next_key(cast), dtype, into, (*exact, *counts))
        return result, text

    def _replaced(self, own: Operator, name: str, operands: tuple[Any, ...], dtype: torch.dtype) -> Tensor:
        """Compute an operation by an operator of the user."""
        started = time.perf_counter()
        check_holds(dtype, own.o)
        if len(own.formats) != len(operands):
            raise PolicyError(f"{name} has {len(operands)} operands, and {own} takes {len(own.formats)}")
        given = torch.broadcast_tensors(*(in_binary64(operand) for operand in operands))
        result = decoded(own.of_numbers(*given), own.o, dtype)
        self.count_element(name, f"{name}={own}", result, started)
        return result

    def rounded(self, name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Round numbers in binary64 once, to the format of element-wise operations."""
        started = time.perf_counter()
        cast = self.arithmetic("add")
        if cast is None or dtype not in DTYPES:
            reason = f"{dtype} is no type of real numbers" if cast else report.names_no(self._missing)
            self.count(report.ELEMENTWISE, None, reason, x, started, operation=name)
            return x.to(dtype)
        assert cast.fmt is not None
        check_holds_results(dtype, cast.fmt)
        result = rounded(x, cast, self.next_key(cast)).to(dtype)
        self.count(report.ELEMENTWISE, str(cast), "", result, started, operation=name)
        return result

    def _into(self, operands: tuple[Any, ...], dtype: torch.dtype) -> Tensor | None:
        """Return the tensor for the result of an operation in place; None if another operand shares its memory."""
        into = self.into
        if into is None or operands[0] is not into or into.dtype != dtype:
            return None
        memory = into.untyped_storage().data_ptr()
        others = [operand for operand in operands[1:] if isinstance(operand, Tensor) and operand is not into]
        apart = all(operand.untyped_storage().data_ptr() != memory for operand in others)
        fits = all(broadcast_shape(into.shape, operand.shape) == into.shape for operand in others)
        return into if apart and fits else None

    def note_constants(self, name: str, cast: Cast, operands: Iterable[Any]) -> None:
        """Note the numbers among operands that the format replaces by 0, 1, an infinity or NaN."""
        for operand in operands:
            if isinstance(operand, (int, float)) and (replacement := became(float(operand).hex(), cast)) is not None:
                self.note(self._where(name, str(cast)), float(operand), replacement)

    def _where(self, operation: str, arithmetic: str, phase: str | None = None) -> dict[str, str]:
        place = {"module": self.place.module, "source": self.place.source, "phase": phase or self.sum_phase}
        return place | {"operation": operation, "arithmetic": arithmetic}

    def count_element(self, name: str, arithmetic: str, result: Tensor, started: float) -> None:
        """Count an element-wise operation or a function in the arithmetic of the policy."""
        kind = report.ELEMENTWISE if name in ARITHMETIC else report.FUNCTION
        self.count(kind, arithmetic, "", result, started, operation=name)

    @property
    def _missing(self) -> str:
        return "optimizer" if self.phase == UPDATE else "elementwise"

    @property
    def sum_phase(self) -> str:
        """Phase of a sum; in a backward pass, sums of layers and of broadcasts are gradients of weights."""
        if self.phase != "backward":
            return self.phase
        name = self.node.name() if self.node is not None else ""
        return "weight_gradient" if name.startswith(("Addmm", "Convolution", "Expand")) else "input_gradient"

    @property
    def numbers(self) -> Cast | None:
        """Format of the elements of sums."""
        return self.policy.optimizer if self.phase == UPDATE else self.policy.rounding_of("add")

    def accumulator(self) -> tuple[Cast | MacSpec | None, str]:
        """Return the accumulator of sums and their order."""
        if self.phase == UPDATE:
            order = "sequential" if self.policy.reductions is None else self.policy.reductions.order
            return self.policy.optimizer, order
        return products.accumulator(self.policy, self.sum_phase)

    def sum(self, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
        """Sum over dimensions, in row-major order of the elements."""
        started = time.perf_counter()
        acc, order = self.accumulator()
        dims = _dims(dim, x.dim())
        if is_broadcast(self.phase, self.sum_phase, [x.shape[axis] for axis in dims]):
            return x.reshape(
                [1 if axis in dims else size for axis, size in enumerate(x.shape) if keepdim or axis not in dims]
            )
        sums: Tensor | None
        if acc is None or x.dtype not in DTYPES:
            sums = torch.sum(x, dims, keepdim) if dims else x.clone()
            self.count(report.REDUCTION, None, self._no_accumulator(x), sums, started)
            return sums
        keys = self._keys(acc)
        sums = products.total_in_kernel(x, dims, self.numbers, acc) if order == "sequential" else None
        if sums is None:
            rest = [axis for axis in range(x.dim()) if axis not in dims]
            shape = [x.shape[axis] for axis in rest]
            rows = x.permute([*rest, *dims]).reshape(*shape, math.prod(x.shape[axis] for axis in dims))
            fmt, rows = self._elements(rows, keys[0])
            sums = products.total(rows, fmt, acc, order, keys[1])
        if keepdim:
            sums = sums.reshape([1 if axis in dims else size for axis, size in enumerate(x.shape)])
        self.count(report.REDUCTION, f"{products.as_cast(acc)} {order}", "", sums, started, operation="sum")
        return sums

    def _keys(self, acc: Cast | MacSpec) -> tuple[int, int]:
        """Return the keys of the random words of the elements and of a sum."""
        return self.next_key(self.numbers), self.next_key(acc)

    def _elements(self, x: Tensor, key: int) -> tuple[Format, Tensor]:
        """Round the elements of a sum to their format."""
        cast = self.numbers
        if cast is None or cast.fmt is None:
            return DTYPES[x.dtype], x
        return cast.fmt, cast.real(x, key)

    def _no_accumulator(self, x: Tensor) -> str:
        if x.dtype not in DTYPES:
            return f"{x.dtype} is no type of real numbers"
        if self.phase == UPDATE:
            return "the policy has no key optimizer"
        return f"the policy has {report.IN_TORCH} for {self.sum_phase} and no key reductions"

    def running(self, name: str, x: Tensor, *, last: bool = False) -> Tensor:
        """Cumulative sums or products along the first dimension, or only the last one.

        In a sequential order each step is rounded to the accumulator. In another order each result is that of a sum or
        product of the elements up to its own. Products have no exact order.
        """
        started = time.perf_counter()
        acc, order = self.accumulator()
        if acc is None or x.dtype not in DTYPES:
            results = torch.cumsum(x, 0) if name == "add" else torch.cumprod(x, 0)
            self.count(report.REDUCTION, None, self._no_accumulator(x), results, started)
            return results[-1:] if last else results
        cast, reason = products.as_cast(acc), ""
        if order == "exact" and name == "mul":
            order, reason = "sequential", "exact is an order of sums; each step of a product is rounded"
        fmt, rows = self._elements(x, self.next_key(self.numbers))
        if order == "sequential":
            # Keys of steps are numbered from 1.
            steps = [cast.real(rows[:1], mix(self.key, 0) if cast.rounding.bits else 0)]
            for row in rows[1:]:
                steps.append(compute(name, (steps[-1][0], row), cast, self.next_key(cast), x.dtype).unsqueeze(0))
        else:
            steps, columns = [rows[:0]], rows.movedim(0, -1)
            for length in range(len(rows) if last else 1, len(rows) + 1):
                given, key = columns[..., :length], self.next_key(cast)
                made = products.total(given, fmt, acc, order, key) if name == "add" else None
                steps.append((products.pairwise(given, cast, key, name) if made is None else made).unsqueeze(0))
        results = torch.cat(steps) if len(rows) else rows
        self.count(report.REDUCTION, f"{cast} {order}", reason, results, started)
        return results[-1:] if last else results

    def scattered(self, into: Tensor, places: Tensor, rows: Tensor) -> Tensor:
        """Add rows to rows of a tensor, in their order."""
        started = time.perf_counter()
        acc, order = self.accumulator()
        if acc is None or into.dtype not in DTYPES:
            sums = into.index_add(0, places, rows)
            self.count(report.REDUCTION, None, self._no_accumulator(into), sums, started)
            return sums
        sums = products.scattered(into, places, rows, self.numbers, acc, order, self._keys(acc))
        self.count(report.REDUCTION, f"{products.as_cast(acc)} {order}", "", sums, started)
        return sums


def is_exact_count(name: str, value: Any, fmt: Format) -> bool:
    """Return True for an integer operand of a product or a quotient that the format does not hold."""
    return type(value) is int and name in ("mul", "div") and not is_held(value, fmt)


def is_broadcast(phase: str, sum_phase: str, sizes: Sequence[int]) -> bool:
    """Return True for sums over dimensions of size 1 in gradients of broadcast operands, which need no arithmetic."""
    return (
        phase == "backward"
        and sum_phase == "input_gradient"
        and all(isinstance(size, int) and size == 1 for size in sizes)
    )


def names_in(model: nn.Module) -> dict[int, str]:
    """Return the names of the modules of a model by id; a compiled module has the module itself as a part."""
    return {id(module): name.replace(COMPILED, "") for name, module in model.named_modules()}


def outside(path: str) -> bool:
    """Return True for a file of the emulated program, which is neither torch's nor of this package."""
    return not path.startswith(_OURS)


def address(x: Tensor) -> int:
    """Return a number for the elements of a tensor in memory, which its transposed and reshaped views share."""
    return hash((x.data_ptr(), x.numel()))


def _dims(dim: Any, count: int) -> list[int]:
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(count))
    given = [dim] if isinstance(dim, int) else dim
    return sorted({axis % max(count, 1) for axis in given}) if count else []


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float32)


def _result_dtype(name: str, operands: tuple[Any, ...]) -> torch.dtype:
    """Return the type of the result of an element-wise operation."""
    given = {operand.dtype if isinstance(operand, Tensor) else type(operand) for operand in operands}
    if torch.float32 in given and given <= {torch.float32, int, float}:
        return torch.float32
    dtype = torch.result_type(operands[0], operands[-1])
    whole = not (dtype.is_floating_point or dtype.is_complex)
    return torch.get_default_dtype() if whole and name not in ("add", "sub", "mul", "pow") else dtype


def _is_native(cast: Cast, operands: tuple[Any, ...], dtype: torch.dtype) -> bool:
    """Return True if torch's own operation rounds once to the format."""
    return (
        cast == Cast(FP32, RN)
        and dtype == torch.float32
        and all(not isinstance(operand, Tensor) or operand.dtype == torch.float32 for operand in operands)
    )


def _in_torch(name: str, operands: tuple[Any, ...]) -> Tensor:
    if name == "gelu_tanh":
        return torch.nn.functional.gelu(operands[0], approximate="tanh")
    if name in ("gelu", "silu", "softplus"):
        result: Tensor = getattr(torch.nn.functional, name)(*operands)
        return result
    if not any(isinstance(operand, Tensor) for operand in operands):
        operands = tuple(torch.tensor(operand) for operand in operands)
    elif not isinstance(operands[0], Tensor):
        operands = (torch.full_like(operands[1], operands[0]), *operands[1:])
    made: Tensor = getattr(torch, name)(*operands)
    return made
