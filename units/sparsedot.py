"""Dot products with structured sparsity."""

from amaranth.hdl import Array, Module, Value

from halfulp.hdl.specs import SparseDotSpec
from halfulp.hdl.wire import wire

from .base import Unit
from .dot import Dot


class SparseDot(Dot):
    """Dot product of k weights, N of each M of a dense vector, with the activations at their indices, one per cycle.

    Formula
    -------
    ``o = round(c + a[i0] * b0 + a[i1] * b1 + ...)``, where ``a[ij]`` is activation ``M * (j // N) + ij``; for order
    ``sequential`` each sum is rounded, as in `Dot`.

    Members
    -------
    a0, a1, ... : In(a)
        Activations, M for each group. Also as the list ``a``.
    b0, b1, ... : In(b)
        Weights, N for each group. Also as the list ``b``.
    i0, i1, ... : In(unsigned(spec.index_bits))
        Index of each weight in its group; M or more selects the last activation. Indices may be in any order, and
        several weights may have the same one. Also as the list ``i``.
    c : In(c)
        Start value. Absent without ``c``.
    o : Out(o)
    flags : Out(5)
        Exception flags, as in `Dot`. Absent without ``flags``.

    Source
    ------
    Storage of N:M weights: Mishra et al., 2021.
    """

    SPEC = SparseDotSpec

    def factors(self, m: Module) -> list[tuple[Value, Value]]:
        """Return the selected activation and the weight of each product."""
        return selected_factors(self, m)


def selected_factors(unit: Unit, m: Module) -> list[tuple[Value, Value]]:
    """Return the selected activation and the weight of each product, from the vectors ``a``, ``b`` and ``i``."""
    factors = []
    for index, (b, at) in enumerate(zip(unit.b, unit.i, strict=True)):
        place = Value.cast(at)
        choices = [unit.a[number].as_value() for number in unit.spec.places(index)]
        choices += choices[-1:] * ((1 << len(place)) - len(choices))
        factors.append((wire(m, Array(choices)[place], f"selected{index}"), b.as_value()))
    return factors
