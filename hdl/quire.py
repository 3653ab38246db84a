"""Exact sums on one fixed-point scale, and the quire register that holds them (Kulisch)."""

from dataclasses import replace

from amaranth.hdl import Cat, Const, Module, Mux

from .fixed import FixedRaw, of_raw
from .number import Number
from .specs import QuireRegister
from .wire import NEVER, shifted_up, wire


def place(m: Module, x: Number, quantum: int, name: str) -> FixedRaw:
    """Convert a number that is a multiple of 2^quantum to fixed point on that scale."""
    if not isinstance(x, FixedRaw):
        return of_raw(m, x, quantum, None, name, exact=True)
    integer = x.integer
    if not isinstance(x.negated, Const):
        integer = wire(m, Mux(x.negated, -integer, integer), f"{name}_signed")
    return FixedRaw(shifted_up(integer, x.quantum - quantum), x.sign, quantum)


def read(number: FixedRaw) -> FixedRaw:
    """Return the value of a quire as a number to round."""
    return replace(number, sign=Mux(number.inf, number.sign, number.integer[-1]))


def step(m: Module, base: FixedRaw, term: FixedRaw, quire: QuireRegister) -> FixedRaw:
    """Return the quire after one more term. An overflow of the carry guard makes it infinite until a new sum starts."""
    integer = wire(m, base.integer + term.integer, "held_exact")
    upper = integer[quire.width - 1 :]
    beyond = wire(m, upper.any() & ~upper.all(), "beyond_guard") if len(integer) > quire.width else NEVER
    inf = base.inf | term.inf | beyond
    sign = Mux(base.inf, base.sign, Mux(term.inf, term.sign, integer[-1]))
    return FixedRaw(
        integer=Cat(integer, integer[-1].replicate(quire.width))[: quire.width].as_signed(),
        sign=wire(m, sign, "held_sign"),
        nan=wire(m, base.nan | term.nan | (base.inf & term.inf & (base.sign ^ term.sign)), "held_nan"),
        inf=wire(m, inf, "held_inf"),
        quantum=quire.quantum,
    )
