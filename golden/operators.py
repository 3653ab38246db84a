"""Operators of users in place of exact operations: approximate multipliers and adders, and functions."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfulp.hdl.formats import EXACT, OFF, RN, SAT, Format, Saturation, parse
from halfulp.hdl.specs import PwlSpec

from .check import check_bool, check_dense, codes_of
from .pwl import pwl
from .values import decoded, encoded

FUNCTION = "operator"
"""Word of an operator in place of a function of one operand."""

TABLE_BITS = 16
"""Largest total width of operands whose results are tabulated for all codes."""


@dataclass(frozen=True)
class Operator:
    """Operation on codes.

    Attributes
    ----------
    text : str
        Name under which it was registered, or text of a unit.
    formats : tuple of Format
        Formats of the operands.
    o : Format
        Format of the result.
    function : callable
        Codes of results from tensors of codes in int64 that broadcast.
    saturate : Saturation
        Operands beyond their format become its largest number.
    """

    text: str
    formats: tuple[Format, ...]
    o: Format
    function: Callable[..., Tensor]
    saturate: Saturation = OFF

    def __str__(self) -> str:
        return self.text

    def __call__(self, *codes: Tensor) -> Tensor:
        """Return the codes of results; operands broadcast."""
        if self._table is None:
            return self.function(*torch.broadcast_tensors(*codes))
        index = _index(codes, self.formats)
        return self._table.to(index.device)[index]

    def of_numbers(self, *values: Tensor) -> Tensor:
        """Round real numbers to nearest, to the formats of the operands; return the codes of results."""
        given = zip(values, self.formats, strict=True)
        return self(*(encoded(x, fmt, RN, None, self.saturate) for x, fmt in given))

    @functools.cached_property
    def _table(self) -> Tensor | None:
        """Results of all codes, the last operand fastest; None for wide operands."""
        if sum(fmt.width for fmt in self.formats) > TABLE_BITS:
            return None
        axes = torch.meshgrid(*(torch.arange(1 << fmt.width) for fmt in self.formats), indexing="ij")
        return self.function(*(axis.reshape(-1) for axis in axes))

    def check_formats(self, given: tuple[Format, ...], what: str) -> None:
        """Raise ValueError unless the operands have these formats."""
        if given != self.formats:
            wanted, taken = (", ".join(map(str, formats)) for formats in (given, self.formats))
            raise ValueError(f"{what} {self} has operands in {taken}, and {wanted} are needed here")


_REGISTERED: dict[str, Operator] = {}


def register_operator(
    name: str,
    function: "Callable[..., Tensor] | Tensor | np.ndarray[Any, Any]",
    *formats: Format | str,
    o: Format | str | None = None,
    values: bool = False,
) -> Operator:
    """Register an operator for `golden.gemm`, policies and `golden.emulate`, in this process.

    Parameters
    ----------
    name : str
        Name in policies, such as ``multiplier=NAME`` or ``elementwise=bf16.rn; mul=NAME``. A later operator of the same
        name replaces it.
    function : callable, Tensor or array
        Function of one tensor for each operand, all of one shape: element by element, the codes of the results in an
        integer type. Operands are codes in int64. Or a table of the codes of all results, such as that of a published
        multiplier: that of operands ``a`` and ``b`` at ``[a, b]``, or at ``a * 2**b.width + b`` in one dimension.
    formats : Format or str
        Formats of the operands, one or two.
    o : Format or str, optional
        Format of the result; default: that of the first operand.
    values : bool
        ``function`` takes and returns real numbers in float64 instead of codes; results are rounded to nearest.

    Returns
    -------
    Operator
        The operator, which is a function of codes. Results of operands with up to 16 bits in total come from a table.

    Raises
    ------
    TypeError, ValueError
        If the name is a unit's text, there are no formats or more than two, or the function or the table gives other
        results.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"name of an operator must be one word of letters, digits and underscores, not {name!r}")
    check_bool("values", values)
    if not 1 <= len(formats) <= 2:
        raise TypeError(f"operator {name} has {len(formats)} formats; give one for each of its one or two operands")
    given = tuple(map(parse, formats))
    result = given[0] if o is None else parse(o)
    if isinstance(function, (Tensor, np.ndarray)):
        function = _of_table(name, function, given, result, values)
    elif not callable(function):
        raise TypeError(f"operator {name} must be a function or a table of codes, not {type(function).__name__}")

    def of_codes(*codes: Tensor) -> Tensor:
        operands = [decoded(x, fmt, torch.float64) for x, fmt in zip(codes, given, strict=True)] if values else codes
        made = function(*operands)
        if not isinstance(made, Tensor) or made.shape != codes[0].shape or made.is_floating_point() != values:
            kind = "real numbers" if values else "integer codes"
            raise ValueError(f"operator {name} must return a tensor of {kind} in the shape of its operands")
        return encoded(made, result, RN, None, OFF) if values else codes_of(f"result of {name}", made, result)

    operator = Operator(name, given, result, of_codes)
    corners = itertools.product(*([0, (1 << fmt.width) - 1] for fmt in given))
    operator.function(*(torch.tensor(column) for column in zip(*corners, strict=True)))
    _REGISTERED[name] = operator
    return operator


def _of_table(
    name: str, table: "Tensor | np.ndarray[Any, Any]", formats: tuple[Format, ...], o: Format, values: bool
) -> Callable[..., Tensor]:
    """Return the function of a table of codes, which later changes of the table do not change."""
    check_dense(f"table of {name}", table)
    widths = [fmt.width for fmt in formats]
    shapes = dict.fromkeys([(1 << sum(widths),), tuple(1 << width for width in widths)])
    if tuple(table.shape) not in shapes:
        wanted, operands = " or ".join(map(str, shapes)), " and ".join(map(str, formats))
        raise ValueError(f"table of {name} has shape {tuple(table.shape)}; all codes of {operands} need {wanted}")
    if values:
        raise ValueError(f"table of {name} holds codes; omit values=True, and convert real numbers by golden.encode")
    results = codes_of(f"table of {name}", table, o).detach().cpu().reshape(-1).clone()

    def function(*codes: Tensor) -> Tensor:
        return results.to(codes[0].device)[_index(codes, formats)]

    return function


def _index(codes: Sequence[Tensor], formats: Sequence[Format]) -> Tensor:
    """Return the places of operands in a table of all codes, the last operand fastest."""
    index = codes[0]
    for fmt, more in zip(formats[1:], codes[1:], strict=True):
        index = index << fmt.width | more
    return index


def operator(text: str, what: str = FUNCTION) -> Operator:
    """Return a registered operator, or that of the text of a ``pwl`` unit, whose operands saturate.

    ``what`` is its word in errors, such as ``multiplier``; units have one operand, so only `FUNCTION` hints at them.

    Raises
    ------
    TypeError, ValueError
        If the text is neither, or the unit rounds stochastically.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"an operator is the name under which halfulp.golden.register_operator registered a function, or the text "
            f"of a unit, not an object of type {type(text).__name__}"
        )
    if text.startswith("pwl "):
        return _of_unit(text)
    if text not in _REGISTERED:
        known = ", ".join(sorted(_REGISTERED)) or "none is"
        unit = ", or give the text of a unit such as 'pwl tanh(fxp4.12)>fxp1.15 pieces=8'" if what == FUNCTION else ""
        raise ValueError(
            f"unknown {what} {text!r}; register it with halfulp.golden.register_operator ({known} registered){unit}"
        )
    return _REGISTERED[text]


@functools.lru_cache(maxsize=256)
def _of_unit(text: str) -> Operator:
    # The fits of other modules of the golden model are given; here a text asks for one.
    from halfulp.hdl.fit.store import table_of

    spec = PwlSpec.parse(text)
    if spec.rounding.bits or spec.rounding.is_port:
        raise ValueError(f"{text} has the rounding {spec.rounding}; as an operator it needs one that takes no input")
    table = table_of(spec)
    if spec.rounding == EXACT:
        table.check_exact()
    rounding, saturate = spec.rounding, spec.saturate

    def function(codes: Tensor) -> Tensor:
        return pwl(codes, table=table, rounding=rounding, saturate=saturate)

    return replace(Operator(str(spec), (table.fmt,), table.out, function), saturate=SAT)
