"""What a user asks for: a unit of the catalogue, by the words of the command line."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .ports import STATE, Ports

OPTIONS = (
    *("acc", "product", "b", "c", "to", "k", "order", "carry"),
    *("lanes", "sharing", "increment", "stochastic", "dsp"),
    *("fn", "pieces", "error", "breakpoints", "slopes", "terms", "structure"),
)
"""What some units take and others do not."""


@dataclass(frozen=True)
class Request:
    """A unit by name, formats and options, all as text.

    Parameters
    ----------
    unit, fmt : str
        Name of the unit and operand format.
    acc, product, b, c, to : str, optional
        Further formats, where the unit has them.
    k, carry : int, optional
        Pairs of a dot product, carry guard of an exact accumulator.
    order : str, optional
        Of a dot product.
    lanes : int, optional
    sharing : str, optional
    increment : bool, optional
        Of a stochastic rounder.
    stochastic : str, optional
        Structure of stochastic rounding in a floating-point adder.
    dsp : bool, optional
        Whether products are left to DSP blocks.
    fn : str, optional
        Function of piecewise-linear units: its name, or that of a file of segments.
    pieces, terms : int, optional
    error : float, optional
    breakpoints, slopes : str, optional
        Of its fit.
    structure : str, optional
        How it is built.
    rounding : str, optional
        What the catalogue has for the unit unless named.
    random : str, optional
        Source of random words; ports without.
    random_seed : int, optional
        State of that source after reset.
    saturate : bool
    pipeline : int
    """

    unit: str
    fmt: str
    acc: str | None = None
    product: str | None = None
    b: str | None = None
    c: str | None = None
    to: str | None = None
    k: int | None = None
    order: str | None = None
    carry: int | None = None
    lanes: int | None = None
    sharing: str | None = None
    increment: bool | None = None
    stochastic: str | None = None
    dsp: bool | None = None
    fn: str | None = None
    pieces: int | None = None
    error: float | None = None
    breakpoints: str | None = None
    slopes: str | None = None
    terms: int | None = None
    structure: str | None = None
    rounding: str | None = None
    random: str | None = None
    random_seed: int | None = None
    saturate: bool = False
    pipeline: int = 0

    def build(self) -> Any:
        """The unit.

        Raises
        ------
        ValueError, TypeError
            If there is no such unit; one sentence says why.
        """
        from halfulp.units.catalogue import build

        unit = build(
            self.unit,
            self.fmt,
            **{option: getattr(self, option) for option in OPTIONS},
            rounding=self.rounding,
            random="port" if self.random is None else self.random,
            seed=1 if self.random_seed is None else self.random_seed,
            saturate=self.saturate,
            pipeline=self.pipeline,
        )
        # Amaranth warns of a component that is never elaborated; a request is often only looked at.
        unit._MustUse__used = True
        return unit

    def command(self, verb: str, *more: str) -> str:
        """Command line that asks for the same."""
        words = ["halfulp", verb, self.unit, self.fmt]
        for option in OPTIONS:
            match getattr(self, option):
                case None:
                    pass
                case bool(switch):
                    words.append(f"--{option}" if switch else f"--no-{option}")
                case value:
                    words += [f"--{option}", str(value)]
        if self.rounding is not None:
            words += ["--round", self.rounding]
        if self.random is not None:
            words += ["--random", self.random]
        if self.random_seed is not None:
            words += ["--random-seed", str(self.random_seed)]
        if self.saturate:
            words += ["--saturate"]
        if self.pipeline:
            words += ["--pipeline", str(self.pipeline)]
        return shlex.join([*words, *more])


def request_of(unit: Any) -> Request:
    """Shortest request that a unit of the catalogue would come from."""
    from .reference import row_of

    given = unit.parameters
    row = row_of(unit)
    if "table" in given:
        return _request_of_function(unit, row)
    texts: dict[str, Any] = {
        option: str(given[key])
        for option, key in (("b", "b"), ("c", "c"), ("acc", "acc"), ("to", "o"), ("order", "order"))
        if given.get(key) is not None
    }
    texts |= {name: getattr(unit, name, None) for name in ("k", "lanes", "sharing")}
    texts |= {"stochastic": unit.build.stochastic, "dsp": unit.build.dsp or None}
    texts |= {name: given.get(name) for name in ("carry", "increment")}
    if given.get("product") is not None:
        texts["product"] = f"{given['product']}.{given['product_rounding']}"
    request = Request(
        unit=row.name,
        fmt=str(given["a"]),
        rounding=str(given["rounding"]),
        random=None if unit.source is None else str(unit.source),
        random_seed=None if unit.seed == 1 else unit.seed,
        saturate=given["saturate"],
        pipeline=unit.build.pipeline,
        **{option: text for option, text in texts.items() if option in row.options},
    )
    for option in (*row.options, "rounding"):
        without: dict[str, Any] = {option: None}
        shorter = replace(request, **without)
        try:
            built = shorter.build()
            same = (built.parameters, built.name) == (given, unit.name)
        except ValueError:
            same = False
        request = shorter if same else request
    return request


def _request_of_function(unit: Any, row: Any) -> Request:
    """Shortest request for a function; what makes it so is looked at and not tried, for a fit takes long.

    A function that has no name is in a file.
    """
    from halfulp.hdl.fit.store import PIECES, write
    from halfulp.units.catalogue import DEFAULT_FUNCTION

    table, given = unit.table, unit.parameters
    named = isinstance(unit.fn, str)
    texts = {name: option for name, option in unit.fitted.items() if option is not None} if named else {}
    if texts.get("pieces") == PIECES and "error" not in texts:
        del texts["pieces"]
    fn = unit.fn if named else str(write(table))
    rounding = None if str(given["rounding"]) == row.rounding else str(given["rounding"])
    return Request(
        unit=row.name,
        fmt=str(table.fmt),
        to=None if table.out == table.fmt else str(table.out),
        fn=None if fn == DEFAULT_FUNCTION else fn,
        structure=unit.build.structure,
        dsp=unit.build.dsp or None,
        rounding=rounding,
        random=None if unit.source is None else str(unit.source),
        random_seed=None if unit.seed == 1 else unit.seed,
        saturate=given["saturate"],
        pipeline=unit.build.pipeline,
        **texts,
    )


def read_vector(text: str, inputs: Ports) -> dict[str, int]:
    """Codes of one vector, written as ``0x3c,0x40,0x001`` in the order of the unit's inputs.

    Raises
    ------
    ValueError
        If there are too many or too few codes, or one is no number or does not fit its port.
    """
    codes = {port.name: int(port.name == "load") for port in inputs}
    return codes | read_codes(text, _alone(inputs))


def read_codes(text: str, ports: Ports) -> dict[str, int]:
    """Codes of some ports, written in their order; raises as `read_vector` does."""
    words = text.split(",")
    if len(words) != len(ports):
        names = ", ".join(ports.names)
        raise ValueError(f"a vector of this unit has {len(ports)} codes ({names}), not {len(words)}")
    codes = {}
    for port, word in zip(ports, words, strict=True):
        try:
            code = int(word, 0)
        except ValueError:
            raise ValueError(f"{word!r} is no code for {port.name}; codes are written like 0x3c") from None
        if not 0 <= code < 1 << port.width:
            raise ValueError(f"code {word} does not fit the {port.width} bits of {port.name}")
        codes[port.name] = code
    return codes


def write_vector(codes: Mapping[str, int], inputs: Ports) -> str:
    """Text that `read_vector` reads."""
    return write_codes(codes, _alone(inputs))


def write_codes(codes: Mapping[str, int], ports: Ports) -> str:
    """Text that `read_codes` reads."""
    return ",".join(f"0x{codes[port.name]:0{-(-port.width // 4)}x}" for port in ports)


def _alone(inputs: Ports) -> Ports:
    """What a vector by itself has codes for: all inputs but those that decide what becomes of the unit's state."""
    return Ports(tuple(port for port in inputs if port.name not in STATE))
