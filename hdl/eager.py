"""Eager stochastic rounding: the random word is added to a sum before that is normalised.

Source: S. Ben Ali, S.-I. Filip and O. Sentieys, "A Stochastic Rounding-Enabled Low-Precision Floating-Point MAC for
DNN Training", DATE 2024. There the upper two random bits wait for the normalisation. Here the whole word is added at
both of the alignments that are left when the signs are known, and the normalisation chooses; so the result is to the
bit that of a word added after it. It is the larger of the two structures, and the one with the shorter longest path.
"""

from dataclasses import replace

from amaranth.hdl import Cat, Const, Module, Mux, Value

from . import raw
from .formats import Float, Rounding
from .wire import carry_out, wire


def add(m: Module, z: raw.Aligned, o: Float, rounding: Rounding, random: Value) -> raw.Raw:
    """Second half of a sum, for which it is already decided whether it goes up when it is rounded to ``o``.

    Raises
    ------
    ValueError
        If the sum is none of a floating-point adder whose result is at least as precise as its operands and has no
        larger exponent where subnormal numbers begin: others may discard more than a random word's alignment tells.
    """
    if z.width > o.precision:
        raise ValueError(
            f"eager stochastic rounding to {o}, whose significand has {o.precision} bits, is for operands of no more "
            f"bits, and there are {z.width}; make it lazy"
        )
    if o.subnormals and z.emin < o.emin:
        raise ValueError(
            f"eager stochastic rounding to {o} is for operands of no smaller exponent than its own, which is {o.emin}, "
            f"and there is {z.emin}; make it lazy"
        )
    exact = raw.add(m, z, rounding)
    # The sum has its first one in the upper place after a carry, in the next one, or another place below. Adding up
    # does not take the last of these, nor taking away the first.
    top = len(exact.significand) - 1
    after_carry, at_one, left = (
        _discarded(exact.significand, top - o.precision - case, len(random)) for case in range(3)
    )
    higher = _carries(m, Mux(z.subtract, at_one, after_carry), random, "carry_if_higher")
    lower = _carries(m, Mux(z.subtract, left, at_one), random, "carry_if_lower")
    is_higher = Mux(z.subtract, exact.significand[top - 1], exact.significand[top])
    return replace(exact, up=wire(m, Mux(is_higher, higher, lower), "goes_up"))


def _discarded(significand: Value, first: int, count: int) -> Value:
    """So many bits of a significand, from the place ``first`` down; places that it does not have are zeros."""
    last = first + 1 - count
    return Cat(Const(0, max(-last, 0)), significand[max(last, 0) : max(first + 1, 0)])[-count:]


def _carries(m: Module, discarded: Value, random: Value, name: str) -> Value:
    """Whether the sum of two words of as many bits has a carry."""
    return wire(m, carry_out(discarded, random), name)
