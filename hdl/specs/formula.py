"""Formulas and ports of units as data: rounded sums of products, or named functions, and the roles of inputs."""

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.rounding import Rounding

from .ranges import ValueRange
from .register import QuireRegister

if TYPE_CHECKING:
    from .dot import Alignment


class Role(Enum):
    """Role of an input in the formula of a unit.

    ``SCALE`` multiplies all elements of a block, ``INDEX`` selects a factor, ``START`` is the start value of a sum,
    ``CONTROL`` negates a term if it is 1, ``STATE`` starts a sum, ``MODE`` chooses the rounding mode, ``RANDOM`` is the
    random word of a rounding.
    """

    OPERAND, SCALE, INDEX, START, CONTROL, STATE, MODE, RANDOM = range(8)


VALUES = (Role.OPERAND, Role.SCALE, Role.INDEX, Role.START, Role.CONTROL)
"""Roles of the operands of the golden function; the others are its keywords, or belong to a sequence of steps."""


@dataclass(frozen=True)
class Pick:
    """Factor ``operand``, which the port ``index`` selects from ``choices``; a larger index selects the last one."""

    operand: str
    index: str
    choices: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.operand}[{self.index}]"


@dataclass(frozen=True)
class Port:
    """Input of a unit, or a wire without a role.

    Parameters
    ----------
    name : str
    shape : Format or int
        Format of its codes, or the width of plain bits.
    role : Role, optional
    argument : str
        Vector argument of the golden function of which the port is an element; empty if it is an argument itself.
    pick : Pick, optional
        Factor that an index of its own selects.
    """

    name: str
    shape: Format | int
    role: Role | None = None
    argument: str = ""
    pick: Pick | None = None

    @property
    def fmt(self) -> Format | None:
        """Format of its codes; None for plain bits."""
        return self.shape if isinstance(self.shape, Format) else None

    @property
    def width(self) -> int:
        """Width in bits."""
        return self.shape if isinstance(self.shape, int) else self.shape.width


def vector(argument: str, count: int, shape: Format | int, role: Role = Role.OPERAND) -> tuple[Port, ...]:
    """Return the ports of the elements of a vector argument."""
    return tuple(Port(f"{argument}{place}", shape, role, argument) for place in range(count))


@dataclass(frozen=True)
class Call:
    """Named function of operands: a real number, or the results of a `Function`."""

    function: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(self.operands)})"


Factor = str | Pick | Call
"""Name of an operand or of an earlier sum, a selected operand, or a function."""


@dataclass(frozen=True)
class Term:
    """Product of factors and of scales: ``negative``, and negated if the port ``negated_by`` is 1."""

    factors: tuple[Factor, ...]
    scales: tuple[str, ...] = ()
    negated_by: str | None = None
    negative: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Operands and sums that the term multiplies, then its scales; a selected operand has the name of its pick."""
        factors = (factor.operand if isinstance(factor, Pick) else str(factor) for factor in self.factors)
        return (*factors, *self.scales)

    def __str__(self) -> str:
        sign = "" if self.negated_by is None else f"(-1)^{self.negated_by} * "
        return "-" * self.negative + sign + " * ".join(map(str, (*self.factors, *self.scales)))

    def __neg__(self) -> "Term":
        return replace(self, negative=not self.negative)

    def range(self, spans: Mapping[str, ValueRange]) -> ValueRange:
        """Return the range of its values from those of its factors, which are names."""
        span = functools.reduce(operator.mul, (spans[str(factor)] for factor in self.factors))
        span = -span if self.negative else span
        return span if self.negated_by is None else span | -span


def term(*factors: Factor, scales: tuple[str, ...] = (), negated_by: str | None = None) -> Term:
    """Return the product of factors."""
    return Term(factors, scales, negated_by)


@dataclass(frozen=True)
class Sum:
    """Exact sum of terms, rounded once.

    Parameters
    ----------
    name : str
        Name of its value: an output, or a factor in a later sum.
    terms : tuple of Term
    rounding : Rounding
        Rounding of the sum; it also decides the sign of a sum that cancels.
    o : Format, optional
        Format of the result; None keeps the sum exact.
    word : str, optional
        Port of the random word.
    from_zero : bool
        The sum starts from +0, which decides the sign of a sum of zeros.
    register : QuireRegister, optional
        Register that holds the sum and has no -0; a sum beyond its range becomes infinite.
    alignment : Alignment, optional
        Truncation of the terms before their addition.
    """

    name: str
    terms: tuple[Term, ...]
    rounding: Rounding
    o: Format | None = None
    word: str | None = None
    from_zero: bool = False
    register: QuireRegister | None = None
    alignment: "Alignment | None" = None

    def range(self, spans: Mapping[str, ValueRange]) -> ValueRange:
        """Return the range of its exact values from those of the factors of its terms, which are names."""
        return functools.reduce(operator.add, (term.range(spans) for term in self.terms))

    def __str__(self) -> str:
        terms = [f"align({term})" if self.alignment else str(term) for term in self.terms]
        text = " + ".join(["0"] * self.from_zero + terms).replace(" + -", " - ")
        return f"{self.name} = {text if self.o is None else f'round({text})'}"


@dataclass(frozen=True)
class Function:
    """Named function that rounds its results itself."""

    names: tuple[str, ...]
    call: Call

    def __str__(self) -> str:
        return f"{', '.join(self.names)} = {self.call}"


@dataclass(frozen=True)
class Formula:
    """Steps of a computation in order: sums, or one function; ``str()`` gives the arithmetic."""

    steps: tuple[Sum | Function, ...]

    @cached_property
    def sums(self) -> tuple[Sum, ...]:
        """Sums of the formula."""
        return tuple(step for step in self.steps if isinstance(step, Sum))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Named functions of the formula."""
        factors = (factor for step in self.sums for term in step.terms for factor in term.factors)
        return tuple(
            [step.call for step in self.steps if isinstance(step, Function)]
            + [factor for factor in factors if isinstance(factor, Call)]
        )

    @cached_property
    def results(self) -> tuple[str, ...]:
        """Names of the rounded results of sums, which no later sum takes."""
        taken = {factor for step in self.sums for term in step.terms for factor in term.factors}
        return tuple(step.name for step in self.sums if step.name not in taken)

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))
