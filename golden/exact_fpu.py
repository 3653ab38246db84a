"""Results of the floating-point unit of a processor for single registers, in exact fractions."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from halfulp.hdl.formats import Fixed, Float, Rounding
from halfulp.hdl.specs.fpu import KINDS, FpuSpec
from halfulp.hdl.specs.unit import FLAGS

INVALID = 1 << FLAGS.index("invalid")


def instruction(spec: FpuSpec, rounding: Rounding, exact: Any, registers: Mapping[str, int]) -> tuple[int, int]:
    """Return the register of the result and the flags of an operation.

    Parameters
    ----------
    spec : FpuSpec
    rounding : Rounding
        Mode of this operation.
    exact : module
        `halfulp.golden.exact`, whose functions compute the lanes.
    registers : mapping of str to int
        Values of the ports.
    """
    name = spec.operations[min(registers["op"], len(spec.operations) - 1)]
    kind = KINDS[name]
    src, dst = (spec.formats[min(registers[port], len(spec.formats) - 1)] for port in ("src_fmt", "dst_fmt"))
    integer = spec.integers[min(registers["int_fmt"], len(spec.integers) - 1)]
    used = [src.width] * kind.src + [dst.width] * kind.dst + [integer] * kind.integer
    lanes = spec.width // max(used) if registers["vectorial"] else 1
    operation = _Operation(name, src, dst, integer, rounding, spec.flags, exact)
    result, flags = 0, 0
    width = operation.result_width
    for lane in range(lanes):
        code, raised = operation.of_lane(_Register(spec.width, lane, bool(registers["vectorial"]), registers))
        result |= (code & ((1 << width) - 1 if registers["vectorial"] else -1)) << (lane * width)
        flags |= raised
    ones = (1 << spec.width) - 1
    if kind.name == "relation":
        return result & ones, flags
    extends = name in ("f2i", "f2u", "fmvx")
    if extends and (registers["vectorial"] or not result >> (width - 1)):
        return result & ones, flags
    return (result | (ones << (lanes * width))) & ones, flags


class _Register:
    """Operands of a lane."""

    def __init__(self, width: int, lane: int, vectorial: bool, registers: Mapping[str, int]) -> None:
        self.width, self.lane, self.vectorial, self.registers = width, lane, vectorial, registers

    def raw(self, bits: int, port: str = "rs1") -> int:
        """Return the bits of a number of some width."""
        return (self.registers[port] >> (self.lane * bits)) & ((1 << bits) - 1)

    def code(self, port: str, fmt: Float) -> int:
        """Return the code of an operand: NaN for a scalar that is not boxed."""
        boxed = (self.registers[port] >> fmt.width) + 1 == 1 << (self.width - fmt.width)
        return self.raw(fmt.width, port) if self.vectorial or boxed else fmt.nan_code


class _Operation:
    """One operation in chosen formats and one rounding mode, on the numbers of a lane."""

    def __init__(
        self, name: str, src: Float, dst: Float, integer: int, rounding: Rounding, tiny: bool | str, exact: Any
    ) -> None:
        self.name, self.src, self.dst, self.integer = name, src, dst, integer
        self.rounding, self.tiny, self.exact = rounding, tiny, exact

    @property
    def result_width(self) -> int:
        """Bits of a number of the result."""
        kind = KINDS[self.name]
        if self.name in ("f2i", "f2u"):
            return self.integer
        return self.dst.width if kind.dst else self.src.width

    def of_lane(self, register: _Register) -> tuple[int, int]:
        """Return the code and the flags of a lane."""
        compute: dict[str, Callable[[_Register], tuple[int, int]]] = {
            "sum": self._sum,
            "quotient": self._quotient,
            "select": self._select,
            "relation": self._relation,
            "to integer": self._to_integer,
            "from integer": self._from_integer,
        }
        return compute[KINDS[self.name].name](register)

    def _sum(self, register: _Register) -> tuple[int, int]:
        name, src, dst = self.name, self.src, self.dst
        how = {"o": dst, "rounding": self.rounding, "flags": self.tiny}
        x, y = (register.code(port, src) for port in ("rs1", "rs2"))
        if name == "f2f":
            found = self.exact.convert(x, a=src, **how)
        elif name == "mul":
            found = self.exact.mul(x, y, a=src, b=src, **how)
        elif name in ("add", "sub"):
            found = self.exact.add(x, register.code("rs2", dst), int(name == "sub"), a=src, b=dst, **how)
        else:
            z = register.code("rs3", dst)
            x ^= src.sign_code * (name in ("fnmsub", "fnmadd"))
            z ^= dst.sign_code * (name in ("fmsub", "fnmadd"))
            found = self.exact.fma(x, y, z, a=src, b=src, c=dst, **how)
        return found.o, found.flags

    def _quotient(self, register: _Register) -> tuple[int, int]:
        src, how = self.src, {"o": self.dst, "rounding": self.rounding, "flags": self.tiny}
        x, y = (register.code(port, src) for port in ("rs1", "rs2"))
        found = self.exact.sqrt(x, a=src, **how) if self.name == "sqrt" else self.exact.div(x, y, a=src, b=src, **how)
        return found.o, found.flags

    def _pair(self, register: _Register) -> tuple[int, int, Fraction | float, Fraction | float]:
        x, y = (register.code(port, self.src) for port in ("rs1", "rs2"))
        return x, y, self.src.decode(x), self.src.decode(y)

    def _invalid(self, quiet: bool, *codes: int) -> int:
        nans = [code for code in codes if math.isnan(self.src.decode(code))]
        return INVALID * any(not quiet or self.src.is_signalling(code) for code in nans)

    def _select(self, register: _Register) -> tuple[int, int]:
        name, sign = self.name, self.src.sign_code
        if name in ("fmvf", "fmvx"):
            return register.raw(self.src.width), 0
        x, y, first, second = self._pair(register)
        if name in ("min", "max"):
            flags = self._invalid(True, x, y)
            # Zeros are ordered by their signs.
            keys = {code: (value, not code & sign) for value, code in ((first, x), (second, y))}
            numbers = [code for code, (value, _) in keys.items() if not math.isnan(value)]
            choose = min if name == "min" else max
            return choose(numbers, key=keys.__getitem__, default=self.src.nan_code), flags
        injected = {"sgnj": y, "sgnjn": ~y, "sgnjx": x ^ y}[name] & sign
        return x & (sign - 1) | injected, 0

    def _relation(self, register: _Register) -> tuple[int, int]:
        if self.name == "classify":
            return self.exact.classify(register.code("rs1", self.src), a=self.src), 0
        x, y, first, second = self._pair(register)
        holds = {"eq": first == second, "lt": first < second, "le": first <= second, "ne": first != second}
        # The negated relations hold for unordered operands.
        holds |= {"nlt": not holds["lt"], "nle": not holds["le"]}
        relation = self.name.removeprefix("f")
        return int(holds[relation]), self._invalid(relation in ("eq", "ne"), x, y)

    def _to_integer(self, register: _Register) -> tuple[int, int]:
        code, signed = register.code("rs1", self.src), self.name == "f2i"
        o = Fixed(self.integer, 0, signed=signed)
        value = self.src.decode(code)
        if isinstance(value, float):
            above = math.isnan(value) or value > 0
            return (o.largest_integer if above else o.least_integer) & ((1 << self.integer) - 1), INVALID
        rounded = self.rounding.round_signed(value)
        if not o.least_integer <= rounded <= o.largest_integer:
            limit = o.largest_integer if rounded > 0 else o.least_integer
            return limit & ((1 << self.integer) - 1), INVALID
        return rounded & ((1 << self.integer) - 1), int(rounded != value)

    def _from_integer(self, register: _Register) -> tuple[int, int]:
        code = register.raw(self.integer)
        a = Fixed(self.integer, 0, signed=self.name == "i2f")
        found = self.exact.convert(code, a=a, o=self.dst, rounding=self.rounding, flags=self.tiny)
        return found.o, found.flags
