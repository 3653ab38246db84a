"""Operations of units with one rounded result: parameters and checks come from the description."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

from torch import Tensor

from halfulp.hdl.formats import Format
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import UnitSpec
from halfulp.hdl.specs.formula import Term
from halfulp.hdl.specs.ranges import ValueRange, window_of

from .check import check_devices, check_shapes, flags_of
from .chosen import by_mode
from .codec import operands, rounded
from .raw import Raw, add, align, multiply, negate, normalised

POSITIONS = ("x", "y", "z")
"""Names of the operands of operations, in order."""


def operation(cls: type[UnitSpec]) -> Callable[[Callable[..., Raw]], Callable[..., Any]]:
    """Make the operation of a unit on tensors of codes from the function that computes its exact results.

    The function takes the description and the unpacked operands; by keyword, if it has such parameters, also the random
    words as ``random``, and the codes of operands and controls by name.
    """

    def made_of(function: Callable[..., Raw]) -> Callable[..., Any]:
        taken = inspect.signature(function).parameters.values()
        further = [parameter.name for parameter in taken if parameter.kind is Parameter.KEYWORD_ONLY]
        names = POSITIONS[: sum(name in cls.__dataclass_fields__ for name in cls.OPERANDS)]
        accepted = (*names, *cls.CONTROLS)

        @by_mode
        def computed(*given: Any, random: Tensor | None = None, **parameters: Any) -> Any:
            _check_no_formats(cls, given[len(names) :])
            spec = cls.of_keywords(parameters, cls.operation_parameters())
            if not len(names) <= len(given) <= len(accepted):
                raise TypeError(f"{cls.form.unit} takes {', '.join(accepted)}, not {len(given)} operands")
            codes = dict.fromkeys(cls.CONTROLS, 0) | dict(zip(accepted, given, strict=False))
            if cls.CONTROLS:
                check_devices(**codes)
                check_shapes(**codes)
            numbers, words = operands(spec, random, **{name: codes[name] for name in names})
            more = codes | {"random": words}
            return rounded(spec, function(spec, *numbers, **{name: more[name] for name in further}), words)

        positions = [Parameter(name, Parameter.POSITIONAL_ONLY, annotation=Tensor) for name in names]
        positions += [Parameter(name, Parameter.POSITIONAL_ONLY, default=0) for name in cls.CONTROLS]
        words_of = {"mode": cls.PORT, "random": cls.ROUNDS}
        keywords = [*cls.operation_parameters().values()]
        optional = functools.partial(Parameter, kind=Parameter.KEYWORD_ONLY, default=None, annotation=Tensor | None)
        keywords += [optional(name) for name, given in words_of.items() if given]
        computed.__signature__ = Signature([*positions, *keywords])  # type: ignore[attr-defined]
        computed.__name__ = computed.__qualname__ = cls.form.unit
        computed.__module__, computed.__doc__ = function.__module__, function.__doc__
        return computed

    return made_of


def _check_no_formats(cls: type[UnitSpec], more: Sequence[object]) -> None:
    """Raise TypeError for a format among the positional arguments behind the operands."""
    fmt = next((value for value in more if isinstance(value, (str, Format))), None)
    if fmt is not None:
        formats = ", ".join(f'{name}="{fmt}"' for name in cls.OPERANDS if name in cls.__dataclass_fields__)
        raise TypeError(f"formats of {cls.form.unit} are given by name: {formats}")


def rounded_sum(cls: type[UnitSpec]) -> Callable[..., Any]:
    """Make the operation of a unit whose formula is a rounded sum of one or two terms, after exact sums."""
    assert 0 < len(cls.TERMS) <= 2, "sums of more terms have operations of their own, such as dot"

    def exact(spec: Any, *numbers: Raw, **controls: Tensor | int) -> Raw:
        values = dict(zip(spec.operands, numbers, strict=True))
        spans = {name: ValueRange.of(fmt) for name, fmt in spec.operands.items()}
        for step in spec.formula.sums:
            terms = [_product(term, values, controls) for term in step.terms]
            span = spans[step.name] = step.range(spans)
            # An exact sum keeps all bits, from the largest to the last place of its terms.
            bits = floor_log2(max(span.magnitude, span.smallest)) + 1 - span.quantum
            window = bits if step.o is None else window_of(step.o, spec.unit_rounding, span.magnitude)
            total, *others = terms
            for other in others:
                total = add(align(total, other, window), step.rounding)
            if step.o is None:
                # The significand of an infinity has no meaning; as a factor it must not count as zero.
                total = values[step.name] = normalised(replace(total, zero=total.zero & ~total.inf))
        return total

    parameters = [Parameter(name, Parameter.KEYWORD_ONLY) for name in cls.CONTROLS]
    exact.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    position = dict(zip(cls.OPERANDS, POSITIONS, strict=True))
    sums = re.sub(r"\b[a-z]\b", lambda match: position[match[0]], cls.SUMMARY.removesuffix(", rounded once"))
    exact.__doc__ = f"Return {sums}, rounded once; see `halfulp.golden` for parameters and errors of all operations."
    return operation(cls)(exact)


def _product(term: Term, values: Mapping[str, Raw], controls: Mapping[str, Tensor | int]) -> Raw:
    """Return the values of a term."""
    number = functools.reduce(multiply, (values[str(factor)] for factor in term.factors))
    if term.negative:
        number = replace(number, sign=~number.sign)
    if term.negated_by is None:
        return number
    return negate(number, flags_of(term.negated_by, controls[term.negated_by], number.sign.device))
