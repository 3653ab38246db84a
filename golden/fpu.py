"""Floating-point unit of a processor."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.formats import Fixed, Float, Format, Rounding
from halfulp.hdl.specs.fpu import KINDS, FpuSpec
from halfulp.hdl.specs.unit import FLAGS

from . import arithmetic, division
from .check import broadcast_shape, check_devices, check_shapes, codes_of
from .chosen import mode_of
from .classify import classify
from .codec import unpack
from .compare import compare
from .convert import convert
from .exact import Flagged, FlaggedComparison
from .raw import int64, mask

INVALID = 1 << FLAGS.index("invalid")

Codes = tuple[Tensor, Tensor]
"""Codes of lanes and their flags."""


def fpu(  # noqa: PLR0913 - tensors, and the fields of a description by name
    rs1: Tensor,
    rs2: Tensor,
    rs3: Tensor,
    op: Tensor,
    src_fmt: Tensor,
    dst_fmt: Tensor,
    int_fmt: Tensor,
    vectorial: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str | None = None,
    c: Format | str | None = None,
    d: Format | str | None = None,
    e: Format | str | None = None,
    f: Format | str | None = None,
    width: int | None = None,
    divide: bool = False,
    rounding: Rounding | str = "port",
    flags: bool | str = True,
    mode: Tensor | None = None,
) -> Flagged:
    """Compute operations of a processor on registers; see `halfulp.golden` for errors and other parameters.

    Parameters
    ----------
    rs1, rs2, rs3 : Tensor
        Registers, as integers of ``width`` bits.
    op, src_fmt, dst_fmt, int_fmt, vectorial : Tensor
        Codes at the ports of `halfulp.units.Fpu`; all tensors broadcast.
    a, b, c, d, e, f, width, divide
        Fields of `FpuSpec`.

    Returns
    -------
    Flagged
        Registers of the results, and flags.
    """
    fields = {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f, "divide": divide, "rounding": rounding, "flags": flags}
    spec = FpuSpec.of(**fields, **({} if width is None else {"width": width}))
    modes = mode_of(mode, spec.rounding)
    given = (rs1, rs2, rs3, op, src_fmt, dst_fmt, int_fmt, vectorial)
    named = dict(zip((port.name for port in spec.operand_ports), given, strict=True))
    kinds = {port.name: port.shape for port in spec.operand_ports}
    check_devices(**named, mode=modes)
    ports = {name: codes_of(name, codes, kinds[name]) for name, codes in named.items()}
    if modes is not None:
        ports["mode"] = modes
    check_shapes(**ports)
    shape = broadcast_shape(*(codes.shape for codes in ports.values()))
    ports = {name: codes.expand(shape).flatten() for name, codes in ports.items()}
    for name, count in (("op", len(spec.operations)), ("src_fmt", len(spec.formats)), ("dst_fmt", len(spec.formats))):
        ports[name] = ports[name].clamp(max=count - 1)
    ports["int_fmt"] = ports["int_fmt"].clamp(max=len(spec.integers) - 1)
    result, raised = torch.zeros_like(ports["rs1"]), torch.zeros_like(ports["rs1"])
    for operation in _operations(spec, ports):
        operation.compute(result, raised)
    return Flagged(result.reshape(shape), raised.reshape(shape))


def _operations(spec: FpuSpec, ports: dict[str, Tensor]) -> Iterator["_Operations"]:
    """Yield the operations that occur: each with the formats on which its results depend."""
    for code in torch.unique(ports["op"]).tolist():
        name = spec.operations[code]
        kind = KINDS[name]
        selectors = [*["src_fmt"] * kind.src, *["dst_fmt"] * kind.dst, *["int_fmt"] * kind.integer]
        rows = (ports["op"] == code).nonzero()[:, 0]
        choices = torch.stack([ports[selector][rows] for selector in selectors], -1)
        for choice in torch.unique(choices, dim=0):
            chosen = dict(zip(selectors, choice.tolist(), strict=True))
            src, dst = (spec.formats[chosen.get(port, 0)] for port in ("src_fmt", "dst_fmt"))
            integer = spec.integers[chosen.get("int_fmt", 0)]
            yield _Operations(spec, name, src, dst, integer, rows[(choices == choice).all(-1)], ports)


@dataclass(frozen=True)
class _Operations:
    """One operation in one choice of formats, for the registers at ``rows``."""

    spec: FpuSpec
    name: str
    src: Float
    dst: Float
    integer: int
    rows: Tensor
    ports: dict[str, Tensor]

    @property
    def result_width(self) -> int:
        """Bits of a number of the result."""
        if KINDS[self.name].dst:
            return self.dst.width
        return self.integer if KINDS[self.name].integer else self.src.width

    def compute(self, result: Tensor, raised: Tensor) -> None:
        """Store results and flags at the rows."""
        kind, width, bits = KINDS[self.name], self.spec.width, self.result_width
        used = [self.src.width] * kind.src + [self.dst.width] * kind.dst + [self.integer] * kind.integer
        lanes = width // max(used)
        function: Callable[[_Lanes], Codes] = getattr(self, f"_{kind.name.replace(' ', '_')}")
        several = self.ports["vectorial"][self.rows] == 1
        for lane in range(lanes):
            rows = self.rows if lane == 0 else self.rows[several]
            if not len(rows):
                return
            codes, flags = function(_Lanes(self, rows, lane))
            vectorial = self.ports["vectorial"][rows] == 1
            codes = torch.where(vectorial, codes & mask(bits), codes & mask(width))
            result[rows] |= codes << (lane * bits)
            raised[rows] |= flags
            if lane == 0:
                self._fill(result, rows, codes, vectorial, lanes)

    def _fill(self, result: Tensor, rows: Tensor, codes: Tensor, vectorial: Tensor, lanes: int) -> None:
        """Fill the bits above the numbers of results: with ones, or of integers with their sign or zeros."""
        width, bits = self.spec.width, self.result_width
        if KINDS[self.name].name == "relation":
            return
        ones = torch.ones_like(vectorial)
        if self.name in ("f2i", "f2u", "fmvx"):
            ones = ~vectorial & ((codes >> (bits - 1)) & 1 == 1)
        used = torch.where(vectorial, lanes * bits, bits)
        above = torch.where(used < width, int64(-1) << used.clamp(max=63), 0) & mask(width)
        result[rows] |= torch.where(ones, above, 0)

    # Kinds of operations ---------------------------------------------------------------------------------------

    def _sum(self, lanes: "_Lanes") -> Codes:
        name, src, dst = self.name, self.src, self.dst
        how = {"o": dst, **lanes.rounding}
        x, y = (lanes.code(port, src) for port in ("rs1", "rs2"))
        if name == "f2f":
            found = convert(x, a=src, **how)
        elif name == "mul":
            found = arithmetic.mul(x, y, a=src, b=src, **how)
        elif name in ("add", "sub"):
            found = arithmetic.add(x, lanes.code("rs2", dst), int(name == "sub"), a=src, b=dst, **how)
        else:
            x = x ^ int64(src.sign_code * (name in ("fnmsub", "fnmadd")))
            z = lanes.code("rs3", dst) ^ int64(dst.sign_code * (name in ("fmsub", "fnmadd")))
            found = arithmetic.fma(x, y, z, a=src, b=src, c=dst, **how)
        return found.o, found.flags

    def _quotient(self, lanes: "_Lanes") -> Codes:
        src, how = self.src, {"o": self.dst, **lanes.rounding}
        x, y = (lanes.code(port, src) for port in ("rs1", "rs2"))
        found = division.sqrt(x, a=src, **how) if self.name == "sqrt" else division.div(x, y, a=src, b=src, **how)
        return found.o, found.flags

    def _select(self, lanes: "_Lanes") -> Codes:
        src, name = self.src, self.name
        x, y = (lanes.code(port, src) for port in ("rs1", "rs2"))
        if name in ("min", "max"):
            relation = _compared(x, y, src)
            x_nan, y_nan = (unpack(codes, src).nan for codes in (x, y))
            # -0 is less than +0.
            x_first = (relation.less == 1) | ((relation.equal == 1) & (x & int64(src.sign_code) != 0))
            takes_x = x_first if name == "min" else ~x_first
            takes_x = torch.where(x_nan | y_nan, y_nan, takes_x)
            codes = torch.where(x_nan & y_nan, int64(src.nan_code), torch.where(takes_x, x, y))
            return codes, relation.flags & INVALID
        if name in ("fmvf", "fmvx"):
            return lanes.raw(src.width), torch.zeros_like(x)
        sign = {"sgnj": y, "sgnjn": ~y, "sgnjx": x ^ y}[name] & int64(src.sign_code)
        return x & int64(src.sign_code - 1) | sign, torch.zeros_like(x)

    def _relation(self, lanes: "_Lanes") -> Codes:
        src, name = self.src, self.name
        x, y = (lanes.code(port, src) for port in ("rs1", "rs2"))
        if name == "classify":
            return classify(x, a=src), torch.zeros_like(x)
        relation = _compared(x, y, src)
        if name in ("feq", "fne"):
            return relation.equal ^ int(name == "fne"), relation.flags & INVALID
        holds = relation.less | (relation.equal if name in ("fle", "fnle") else 0)
        return holds ^ int(name in ("fnlt", "fnle")), relation.unordered * INVALID

    def _to_integer(self, lanes: "_Lanes") -> Codes:
        x = lanes.code("rs1", self.src)
        o = Fixed(self.integer, 0, signed=self.name == "f2i")
        found = convert(x, a=self.src, o=o, **lanes.rounding)
        nan = unpack(x, self.src).nan
        return torch.where(nan, int64(o.largest_integer), found.o), found.flags

    def _from_integer(self, lanes: "_Lanes") -> Codes:
        a = Fixed(self.integer, 0, signed=self.name == "i2f")
        found = convert(lanes.raw(self.integer), a=a, o=self.dst, **lanes.rounding)
        return found.o, found.flags


def _compared(x: Tensor, y: Tensor, fmt: Float) -> FlaggedComparison:
    relation = compare(x, y, a=fmt, b=fmt, flags=True)
    assert isinstance(relation, FlaggedComparison)
    return relation


@dataclass(frozen=True)
class _Lanes:
    """Operands of one lane, of several registers."""

    operations: _Operations
    rows: Tensor
    lane: int

    def _port(self, name: str) -> Tensor:
        return self.operations.ports[name][self.rows]

    @property
    def rounding(self) -> dict[str, Any]:
        """Keywords of the operations that round."""
        spec = self.operations.spec
        mode = {"mode": self._port("mode")} if spec.rounding.is_port else {}
        return {"rounding": spec.rounding, "flags": spec.flags, **mode}

    def raw(self, bits: int, port: str = "rs1") -> Tensor:
        """Return the bits of numbers of some width."""
        return (self._port(port) >> (self.lane * bits)) & mask(bits)

    def code(self, port: str, fmt: Float) -> Tensor:
        """Return the codes of an operand: NaN for a scalar that is not boxed."""
        above = self.operations.spec.width - fmt.width
        boxed = (self._port(port) >> fmt.width) & mask(above) == mask(above) if above else True
        return torch.where((self._port("vectorial") == 1) | boxed, self.raw(fmt.width, port), int64(fmt.nan_code))
