"""Torch's own database of operators: samples of each operator run in torch and in emulation, and are compared."""

import functools
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from halfulp import golden
from halfulp.golden.program.dispatch import is_exact

POLICY = "fp32*fp32+fp32.rn, elementwise=fp32.rn, functions=fp32.rn, reductions=fp32.rn sequential, optimizer=fp32.rn"

ROUNDING = 2.0**-24
"""Largest relative error of one rounding to binary32."""

SMALLEST = 2.0**-150
"""Largest error of one rounding to a subnormal number of binary32."""

FUNCTION_ERRORS = 4
"""Roundings for which the error of an element-wise kernel of torch stands: its functions have errors of 1 to 2 ulp."""

TRIALS = 8


@functools.cache
def database() -> dict[str, Any]:
    """Load torch's database of operators by name, of those that take binary32."""
    # torch.testing subclasses a class of the package expecttest, which has to do with its own tests only.
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {one.full_name: one for one in op_db if one.supports_dtype(torch.float32, "cpu")}


@dataclass
class Outcome:
    """Results of a call: leaves of the result and gradients, or the error that it raised."""

    results: list[Any] = field(default_factory=list)
    gradients: list[Any] | None = None
    error: Exception | None = None
    gradient_error: Exception | None = None


def refused(error: Exception | None) -> bool:
    """Return True for the sentence in which emulation refuses an operation."""
    return error is not None and ("torch's own arithmetic" in str(error) or "golden.emulate computes no" in str(error))


def call(function: Callable[..., Any], sample: Any, backward: bool) -> Outcome:
    """Call a function on a sample, and differentiate its results."""
    found = Outcome()
    given = (sample.input, sample.args, sample.kwargs)
    torch.manual_seed(1)
    try:
        found.results = tree_leaves(function(sample.input, *sample.args, **sample.kwargs))
    except Exception as error:
        found.error = error
        return found
    inputs = [one for one in tree_leaves(given) if isinstance(one, Tensor) and one.requires_grad]
    outputs = [one for one in found.results if isinstance(one, Tensor) and one.requires_grad]
    if backward and inputs and outputs:
        torch.manual_seed(2)
        try:
            starts = [torch.randn(one.shape, dtype=torch.float32).to(one.dtype) for one in outputs]
            found.gradients = list(torch.autograd.grad(outputs, inputs, starts, allow_unused=True))
        except Exception as error:
            found.gradient_error = error
    return found


class Perturbed(TorchDispatchMode):
    """Perturb operands and results in binary64 by the largest relative error of a computation in binary32.

    A sum of n numbers in any order is the exact sum of numbers that differ from them by up to n roundings (Higham,
    Accuracy and Stability of Numerical Algorithms, section 4.2).
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts = decomposition_table

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_exact(func):
            return func(*args, **kwargs)
        if torch.Tag.pointwise in func.tags and func not in self.parts:
            return tree_map_only(Tensor, lambda one: perturbed(one, FUNCTION_ERRORS), func(*args, **kwargs))
        if func in self.parts:
            with self:
                return self.parts[func](*args, **kwargs)
        sizes = [one.numel() for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        terms = FUNCTION_ERRORS + max(sizes, default=0)
        if not func._schema.is_mutable:
            args = tree_map_only(Tensor, lambda one: perturbed(one.clone(), terms), args)
        return tree_map_only(Tensor, lambda one: perturbed(one, terms), func(*args, **kwargs))


def perturbed(x: Tensor, terms: int) -> Tensor:
    """Change each number by ``terms`` roundings upwards or downwards."""
    if x.dtype != torch.float64 or x.layout != torch.strided or x.is_nested:
        return x
    signs = torch.randint(2, x.shape, generator=GENERATOR).to(torch.float64).mul_(2).sub_(1)
    with torch.no_grad():
        if 0 in x.stride():
            return x
        finite = x.isfinite()
        return torch.where(finite, x * (1 + signs * terms * ROUNDING) + signs * terms * SMALLEST, x, out=x)


GENERATOR = torch.Generator()


def bounds(function: Callable[..., Any], sample: Any, backward: bool) -> tuple[Outcome, list[Any], list[Any]]:
    """Return the outcome in binary64, and the largest deviations of results and gradients in binary32.

    Parker's Monte Carlo arithmetic: each result is perturbed by the largest error of its sums in any order, n terms by
    n roundings (Higham), and so are the operands; the end result deviates as in the worst of `TRIALS` runs.
    """

    def wide(x: Tensor, change: bool = False) -> Tensor:
        if x.dtype != torch.float32:
            return x
        made = x.detach().double()
        return (perturbed(made, FUNCTION_ERRORS) if change else made).requires_grad_(x.requires_grad)

    exact = call(function, sample.transform(lambda x: wide(x) if isinstance(x, Tensor) else _type(x)), backward)
    spreads: list[list[Any]] = [[], []]
    GENERATOR.manual_seed(0)
    for _ in range(TRIALS):
        given = sample.transform(lambda x: wide(x, True) if isinstance(x, Tensor) else _type(x))
        with Perturbed():
            found = call(function, given, backward)
        for spread, ours, theirs in zip(
            spreads, (found.results, found.gradients or []), (exact.results, exact.gradients or []), strict=True
        ):
            apart = [
                (a.detach() - b.detach()).abs()
                if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
                else None
                for a, b in zip(ours, theirs, strict=False)
            ]
            for place, one in enumerate(apart):
                if place == len(spread):
                    spread.append(None if one is None else one.nan_to_num(0))
                elif one is not None and spread[place] is not None:
                    spread[place] = torch.maximum(spread[place], one.nan_to_num(0))
    return exact, spreads[0], spreads[1]


def _type(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def strides(x: Tensor) -> list[int] | None:
    """Return the strides that matter: those of dimensions of more than one element."""
    if x.layout != torch.strided or not x.numel():
        return None
    return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def same_bits(a: Any, b: Any) -> bool:
    """Return True for equal numbers, NaN and signs of zeros included."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return a is b or a == b or (isinstance(a, float) and a != a and b != b)
    if a.layout != torch.strided:
        return a.layout == b.layout and same_bits(a.to_dense(), b.to_dense())
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = a.detach(), b.detach()
    if a.is_complex():
        return same_bits(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
    return bool(
        torch.equal(a, b)
        or (
            a.is_floating_point()
            and torch.equal(a.nan_to_num(0.125), b.nan_to_num(0.125))
            and torch.equal(a.isnan(), b.isnan())
        )
    )


def difference(
    part: str, found: list[Any], wanted: list[Any], bound: Callable[[], tuple[list[Any], list[Any]]]
) -> Iterator[str]:
    """Name the differences of lists of results."""
    if len(found) != len(wanted):
        yield f"{part}: {len(found)} results, not {len(wanted)}"
        return
    for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            if not same_bits(a, b):
                yield f"{part}: value"
            continue
        if (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
            yield f"{part}: type {a.dtype} {tuple(a.shape)} {a.layout}, not {b.dtype} {tuple(b.shape)} {b.layout}"
            continue
        if strides(a) != strides(b):
            yield f"{part}: strides {a.stride()}, not {b.stride()} of {tuple(a.shape)}"
        if same_bits(a, b):
            continue
        if a.dtype not in (torch.float32, torch.float64):
            yield f"{part}: value of {a.dtype}"
            continue
        exact, spread = bound()
        if (
            place >= len(exact)
            or place >= len(spread)
            or exact[place] is None
            or spread[place] is None
            or exact[place].shape != a.shape
        ):
            yield f"{part}: value without bound, apart {float((a - b).detach().abs().max()):.3g}"
            continue
        true = exact[place].detach().double()
        limit = 2 * spread[place] + true.abs() * ROUNDING + 2.0**-149
        # Vectors of decompositions have either sign: torch's result is as close to another exact one.
        apart = torch.minimum((a.detach().double() - true).abs(), (a.detach().double() - b.detach().double()).abs())
        wrong = ~(
            (apart <= limit)
            | (a.detach() == b.detach())
            | (true.isnan() & a.detach().isnan())
            | (a.detach().isnan() & b.detach().isnan())
        )
        if wrong.any():
            at = int(torch.where(wrong, apart / limit, 0).argmax())
            yield (
                f"{part}: value {float(a.reshape(-1)[at]):.9g}, torch {float(b.reshape(-1)[at]):.9g},"
                f" exact {float(true.reshape(-1)[at]):.9g}, limit {float(limit.reshape(-1)[at]):.3g}"
            )


def compared(
    part: str, function: Callable[..., Any], sample: Any, backward: bool, reference: Callable[..., Any] | None = None
) -> Iterator[str]:
    """Name the differences of a call in torch and in emulation."""

    def copied() -> Any:
        return sample.transform(lambda x: copy(x) if isinstance(x, Tensor) else x)

    eager = call(function, copied(), backward)
    with golden.emulate(POLICY, strict=True):
        found = call(function, copied(), backward)
    if refused(found.error):
        yield f"{part}: refused {sentence(found.error)}"
        with golden.emulate(POLICY):
            found = call(function, copied(), backward)
    if type(found.error) is not type(eager.error):
        yield f"{part}: raises {describe(found.error)}, not {describe(eager.error)}"
        return
    limits = functools.cache(lambda: bounds(reference or function, sample, backward))
    yield from difference(part, found.results, eager.results, lambda: (limits()[0].results, limits()[1]))
    if refused(found.gradient_error):
        yield f"{part} gradient: refused {sentence(found.gradient_error)}"
        with golden.emulate(POLICY):
            found = call(function, copied(), backward)
    if type(found.gradient_error) is not type(eager.gradient_error):
        yield f"{part} gradient: raises {describe(found.gradient_error)}, not {describe(eager.gradient_error)}"
        return
    if eager.gradients is not None:
        pairs = found.gradients or [], eager.gradients
        yield from difference(f"{part} gradient", *pairs, lambda: (limits()[0].gradients or [], limits()[2]))


def sentence(error: Exception) -> str:
    return str(error).split(" at ")[0].split(":")[0][:60]


def describe(error: Exception | None) -> str:
    return (
        "nothing"
        if error is None
        else f"{type(error).__name__} ({str(error).strip().splitlines()[0][:110] if str(error).strip() else ''})"
    )


def copy(x: Tensor) -> Tensor:
    """Copy a tensor with its strides."""
    if x.layout != torch.strided or x.is_nested:
        return x.detach().clone().requires_grad_(x.requires_grad)
    made = x.detach().clone()
    if made.stride() != x.stride() and x.numel():
        made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) if 0 not in x.stride() else x.detach().clone()
        made.copy_(x.detach()) if 0 not in x.stride() else None
    return made.requires_grad_(x.requires_grad)


def in_place(op: Any) -> Callable[..., Any]:
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        given = x.clone() if isinstance(x, Tensor) else [one.clone() for one in x]
        found = op.inplace_variant(given, *args, **kwargs)
        return [found, given]

    return run


def into_out(op: Any, resized: bool = False) -> Callable[..., Any]:
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            torch.manual_seed(1)
            made = op(x, *args, **kwargs)
            torch.manual_seed(1)

            def like(one: Any) -> Any:
                return (
                    one.new_empty(0)
                    if resized
                    else torch.empty_strided(one.shape, one.stride(), dtype=one.dtype).fill_(1)
                )

            outs = like(made) if isinstance(made, Tensor) else tuple(like(one) for one in made)
            op(x, *args, out=outs, **kwargs)
        return outs

    return run


def findings(op: Any, most: int | None = None) -> dict[str, int]:
    """Return the differences of an operator from torch on at most `most` samples, and how often each was found."""
    found: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        gradients = op.supports_autograd and op.supports_dtype(torch.float32, "cpu")
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=gradients))
        for sample in samples[:: -(-len(samples) // most) if most and samples else 1]:
            parts = [*compared("forward", op, sample, gradients)]
            if op.inplace_variant is not None and not sample.broadcasts_input:
                parts += compared("in place", in_place(op), sample, gradients)
            if op.supports_out:
                parts += compared("out", into_out(op), sample, False, op)
            for one in parts:
                found[one] = found.get(one, 0) + 1
        errors = op.error_inputs("cpu") if op.error_inputs_func is not None else ()
        for one in errors:
            for text in compared("error", op, one.sample_input, False):
                found[text] = found.get(text, 0) + 1
    return found
