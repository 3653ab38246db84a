"""Description of the floating-point unit of a processor."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.catalogue import parse
from halfulp.hdl.formats.checks import check_bool, check_int
from halfulp.hdl.formats.fixed import Fixed
from halfulp.hdl.formats.floating import Float
from halfulp.hdl.formats.rounding import Rounding

from .formula import Call, Formula, Function, Port, Role
from .unit import AFTER, FLAG_WORDS, UnitSpec

OPERATIONS = (
    *("fmadd", "fmsub", "fnmsub", "fnmadd", "add", "sub", "mul", "sgnj", "sgnjn", "sgnjx", "min", "max"),
    *("feq", "flt", "fle", "fne", "fnlt", "fnle", "classify", "f2f", "f2i", "f2u", "i2f", "u2f", "fmvf", "fmvx"),
    *("div", "sqrt"),
)
"""Operations by the code at the port ``op``; a larger code selects the last one of the unit."""

DIVISIONS = ("div", "sqrt")
"""Operations whose results have endless digits, which only a unit with ``divide`` has."""

OP_BITS = 5

INTEGER_BITS = (8, 16, 32, 64)
"""Widths of integers by the code at the port ``int_fmt``; a code beyond the register selects the last one within it."""

REGISTERS = (8, 16, 32, 64)
"""Widths of registers."""


class Kind(NamedTuple):
    """Property of a group of operations.

    Attributes
    ----------
    name : str
    src, dst, integer : bool
        The operation depends on ``src_fmt``, on ``dst_fmt``, on ``int_fmt``.
    """

    name: str
    src: bool
    dst: bool
    integer: bool


_KINDS = {
    Kind("sum", True, True, False): ("fmadd", "fmsub", "fnmsub", "fnmadd", "add", "sub", "mul", "f2f"),
    Kind("quotient", True, True, False): DIVISIONS,
    Kind("select", True, False, False): ("sgnj", "sgnjn", "sgnjx", "min", "max", "fmvf", "fmvx"),
    Kind("relation", True, False, False): ("feq", "flt", "fle", "fne", "fnlt", "fnle", "classify"),
    Kind("to integer", True, False, True): ("f2i", "f2u"),
    Kind("from integer", False, True, True): ("i2f", "u2f"),
}

KINDS = {name: kind for kind, names in _KINDS.items() for name in names}
"""Kind of each operation."""


def is_supported(fmt: Format) -> bool:
    """Return True for a float that the unit computes in: with NaN, two zeros, subnormal numbers and mantissa bits."""
    return isinstance(fmt, Float) and fmt.specials in ("ieee", "fn") and fmt.subnormals and fmt.man > 0


@dataclass(frozen=True)
class FpuSpec(
    UnitSpec, form="fpu a[,b][,c][,d][,e][,f]", summary="floating-point unit of a processor, chosen at run time"
):
    """Floating-point unit of a processor, with the operations and results of RISC-V in several formats.

    Parameters
    ----------
    a, b, c, d, e, f : Format
        Formats, whose codes at ``src_fmt`` and ``dst_fmt`` are 0, 1, ... in this order.
    width : int
        Bits of a register: 8, 16, 32 or 64; default: as many as the widest format needs. A register holds one number,
        or with ``vectorial`` as many as fit.
    divide : bool
        The unit also has the operations ``div`` and ``sqrt``. Default: no, because they take a row of adders for each
        digit, or with ``build.iterations`` make the latency depend on the operation, so that the unit has ``ready``.
    """

    PORT = True
    FLAGS = True

    a: Format
    b: Format | None = None
    c: Format | None = None
    d: Format | None = None
    e: Format | None = None
    f: Format | None = None
    width: int = None  # type: ignore[assignment]  # None asks for the default; after construction it is an int
    divide: bool = False
    rounding: Rounding = field(default=Rounding("port"), kw_only=True)
    flags: bool | str = field(default=AFTER, kw_only=True, metadata={"values": FLAG_WORDS})

    @classmethod
    def takes(cls, fmt: Format, rounding: Rounding | None) -> bool:
        """Return True for floats of the unit, and for modes without random words."""
        return is_supported(fmt) and (rounding is None or (rounding.bits == 0 and rounding.mode != "exact"))

    @classmethod
    def has_effect(cls, name: str) -> bool:
        """Return True if a field may have another value than its default."""
        return name not in ("saturate", "random", "seed") and super().has_effect(name)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        """Return no fields: the short form has one format."""
        return {}

    def __post_init__(self) -> None:
        if self.a is None:
            raise TypeError("a of fpu is missing")
        formats = self.formats
        for name in self.form.parts:
            fmt = getattr(self, name)
            if fmt is None:
                continue
            if not isinstance(fmt, Format):
                raise TypeError(f"{name} of fpu must be a Format, not {type(fmt).__name__}")
            if not is_supported(fmt):
                raise ValueError(
                    f"fpu has no {fmt}: its formats are floats with NaN, two zeros, subnormal numbers and mantissa "
                    "bits, such as fp32, bf16, e5m2 or e4m3fn"
                )
            if formats.count(fmt) > 1:
                raise ValueError(f"fpu has the format {fmt} twice; name it once")
        if self.width is None:
            widest = max(fmt.width for fmt in formats)
            object.__setattr__(self, "width", next(bits for bits in REGISTERS if bits >= widest))
        self._check_width()
        check_bool("divide", self.divide, self.form.unit)
        super().__post_init__()

    def _check_width(self) -> None:
        widest = max(fmt.width for fmt in self.formats)
        check_int("width", self.width, self.form.unit)
        if self.width not in REGISTERS:
            raise ValueError(f"fpu has no registers of width={self.width}; expected 8, 16, 32 or 64")
        if self.width < widest:
            raise ValueError(f"a register of width={self.width} holds no number of {widest} bits; widen it")

    def check(self) -> None:
        """Check rounding, saturation and flags."""
        if self.rounding.bits or self.rounding.mode == "exact":
            raise ValueError(f"fpu does not round with {self.rounding}; expected port, port_ro, or one mode such as rn")
        if self.saturate:
            raise ValueError("fpu does not saturate, because overflow follows IEEE 754; omit it")
        if not self.flags:
            raise ValueError("fpu always has exception flags; flags is after or before")

    @property
    def formats(self) -> tuple[Float, ...]:
        """Formats in the order of their codes."""
        named = (self.a, self.b, self.c, self.d, self.e, self.f)
        return tuple(fmt for fmt in named if fmt is not None)

    @property
    def operations(self) -> tuple[str, ...]:
        """Operations of the unit by their codes."""
        return OPERATIONS if self.divide else OPERATIONS[: -len(DIVISIONS)]

    def digits(self, fmt: Float) -> int:
        """Return the number of digits of a quotient or root that its rounding to a format needs.

        The first digit of a quotient may be zero. The one below the significand decides the rounding with the
        remainder, and of numbers below the smallest normal one also if they are tiny after it.
        """
        return fmt.precision + 2

    @property
    def first_format(self) -> Format:
        return self.a

    @property
    def integers(self) -> tuple[int, ...]:
        """Widths of the integers that a register holds, in the order of their codes."""
        return tuple(bits for bits in INTEGER_BITS if bits <= self.width)

    @property
    def register(self) -> Fixed:
        """Registers as unsigned integers."""
        fmt = parse(f"uint{self.width}")
        assert isinstance(fmt, Fixed)
        return fmt

    @property
    def operands(self) -> dict[str, Format]:
        """Registers of the operands by name."""
        return dict.fromkeys(("rs1", "rs2", "rs3"), self.register)

    @property
    def result(self) -> Format:
        """Register of the result."""
        return self.register

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        choice = max((len(self.formats) - 1).bit_length(), 1)
        selectors = {"op": OP_BITS, "src_fmt": choice, "dst_fmt": choice, "int_fmt": 2, "vectorial": 1}
        return (*super().operand_ports, *(Port(name, bits, Role.INDEX) for name, bits in selectors.items()))

    @property
    def formula(self) -> Formula:
        return Formula((Function(("o",), Call("fpu", tuple(port.name for port in self.operand_ports))),))

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the golden function."""
        return {name: value for name, value in super().parameters.items() if self.has_effect(name)}
