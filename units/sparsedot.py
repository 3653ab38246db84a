"""Dot products with structured sparsity."""

from typing import Any, Unpack

from amaranth.hdl import Array, Module, Value, unsigned

from halfulp.hdl.formats import Format
from halfulp.hdl.specs import Build, SparseDotSpec
from halfulp.hdl.wire import wire

from .base import Options, numbered
from .dot import Dot


class SparseDot(Dot):
    """Dot product of k weights, N of each M of a dense vector, with the activations at their indices, one per cycle.

    Formula
    -------
    ``o = round(c + a[i0] * b0 + a[i1] * b1 + ...)``, where ``a[ij]`` is activation ``M * (j // N) + ij``; for order
    ``sequential`` each sum is rounded, as in `Dot`.

    Parameters
    ----------
    k, a, b, o, c, order, sparsity
        Fields of `SparseDotSpec`; formats and roundings may be texts.
    build : Build
        Register stages and structure; changes ``latency`` and no result bit.
    **options
        Rounding, random source, saturation and flags; see `Options`.

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

    Latency
    -------
    ``stages`` cycles.

    Source
    ------
    Storage of N:M weights: Mishra et al., 2021.
    """

    SPEC = SparseDotSpec

    def __init__(
        self,
        *,
        k: int,
        a: Format | str,
        b: Format | str,
        o: Format | str | None = None,
        c: Format | str | None = None,
        order: str = "exact",
        sparsity: str = "2:4",
        build: Build = Build(),
        **options: Unpack[Options],
    ) -> None:
        spec = SparseDotSpec.of(k=k, a=a, b=b, o=o, c=c, order=order, sparsity=sparsity, **options)
        self._of_vectors(spec, vectors_of(spec), build)

    def factors(self, m: Module) -> list[tuple[Value, Value]]:
        """Return the selected activation and the weight of each product."""
        return selected_factors(self, m)


def vectors_of(spec: Any) -> dict[str, dict[str, Any]]:
    """Return the ports of activations, weights and indices, by vector, of a description with structured sparsity."""
    activations = numbered("a", spec.activations)
    return {
        "a": dict.fromkeys(activations, spec.a),
        "b": dict.fromkeys(numbered("b", spec.k), spec.b),
        "i": dict.fromkeys(numbered("i", spec.k), unsigned(spec.index_bits)),
    }


def selected_factors(unit: Any, m: Module) -> list[tuple[Value, Value]]:
    """Return the selected activation and the weight of each product, from the vectors ``a``, ``b`` and ``i``."""
    found = []
    for index, (b, at) in enumerate(zip(unit.b, unit.i, strict=True)):
        place = Value.cast(at)
        choices = [unit.a[number].as_value() for number in unit.spec.places(index)]
        choices += choices[-1:] * ((1 << len(place)) - len(choices))
        found.append((wire(m, Array(choices)[place], f"selected{index}"), b.as_value()))
    return found
