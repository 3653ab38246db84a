"""Descriptions of units of blocks, which are numbers with a shared scale."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from halfulp.hdl.formats.base import Format
from halfulp.hdl.formats.block import Block
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.formats.floating import Float
from halfulp.hdl.formats.rounding import Rounding

from .formula import Call, Formula, Function, Port, Role, Sum, Term, term, vector
from .ranges import ValueRange
from .register import CARRY_BITS, QuireRegister
from .running_sum import RunningSumSpec
from .unit import UnitSpec


@dataclass(frozen=True)
class BlockSpec(UnitSpec):
    """Base class of units with blocks as operands or result."""

    PORT = False
    NO_FLAGS = "IEEE 754 defines none for blocks with a shared scale"

    BLOCKS: ClassVar[tuple[str, ...]] = ("a",)

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        return Block.parse(text) if part in cls.BLOCKS else super().read_part(part, text)

    @classmethod
    def takes(cls, fmt: Any, rounding: Rounding | None) -> bool:
        """Return True for blocks if the operand is one, and for numbers otherwise."""
        return fmt.shares_scale and cls.takes_rounding(rounding) if "a" in cls.BLOCKS else super().takes(fmt, rounding)

    def _block(self, name: str) -> Block:
        block = getattr(self, name)
        if not getattr(block, "shares_scale", False):
            raise TypeError(f"{name} of {self.form.unit} must be a block, such as mxfp8_e4m3, not {block}")
        return block

    @property
    def operands(self) -> dict[str, Format]:
        """Formats of elements, scales and other operands by name; ``a_scale`` is the scale of ``a``."""
        formats: dict[str, Format] = {}
        for name in (name for name in ("a", "b") if name in self.BLOCKS):
            block = self._block(name)
            formats |= {name: block.element, f"{name}_scale": block.scale}
        return formats

    def block_ports(self, count: int) -> tuple[Port, ...]:
        """Return the ports of ``count`` elements of each block operand, then those of the scales."""
        blocks = {name: getattr(self, name) for name in ("a", "b") if name in self.BLOCKS}
        elements = (port for name, block in blocks.items() for port in vector(name, count, block.element))
        return (*elements, *(Port(f"{name}_scale", block.scale, Role.SCALE) for name, block in blocks.items()))


@dataclass(frozen=True)
class BlockQuantizeSpec(BlockSpec, form="blockquantize a>o", summary="numbers to a block with a scale"):
    """Conversion of numbers to a block.

    Parameters
    ----------
    a : Format
        Format of the numbers.
    o : Block
        Result; default of the short form: ``block(e4m3fn,8,e8m0fnu,floor)``. ``rounding`` is that of its elements,
        which saturate.
    """

    BLOCKS = ("o",)
    OWN_RESULTS = True

    a: Format
    o: Block

    def check(self) -> None:
        self._block("o")
        if self.saturate:
            raise ValueError("elements of a block saturate in any case; omit .sat")

    @classmethod
    def has_effect(cls, name: str) -> bool:
        """Return True if a field may have another value than its default; elements saturate in any case."""
        return name != "saturate" and super().has_effect(name)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        return {"o": lambda: Block.parse("block(e4m3fn,8,e8m0fnu,floor)")}

    @property
    def operands(self) -> dict[str, Format]:
        return {"a": self.a}

    @property
    def result(self) -> Format:
        """Format of the elements."""
        return self.o.element

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return vector("a", self.o.length, self.a)

    @property
    def word_ports(self) -> tuple[Port, ...]:
        return self.words_of(self.o.length)

    @property
    def formula(self) -> Formula:
        names = (*(f"o{index}" for index in range(self.o.length)), "o_scale")
        return Formula((Function(names, Call("blockquantize", tuple(port.name for port in self.operand_ports))),))

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().parameters.items() if name != "saturate"}


@dataclass(frozen=True)
class BlockDequantizeSpec(BlockSpec, form="blockdequantize a>o", summary="a block to numbers"):
    """Conversion of a block to numbers: each element times the scale, rounded once.

    Parameters
    ----------
    a : Block
    o : Format
        Format of the numbers; default of the short form: fp32.
    """

    a: Block
    o: Format

    @classmethod
    def defaults(cls, a: Any) -> dict[str, Callable[[], Any]]:
        return {"o": lambda: Float(8, 23)}

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return self.block_ports(self.a.length)

    @property
    def word_ports(self) -> tuple[Port, ...]:
        return self.words_of(self.a.length)

    @property
    def formula(self) -> Formula:
        products = [term(f"a{index}", scales=("a_scale",)) for index in range(self.a.length)]
        return Formula(tuple(self.rounded(a, name=f"o{at}", word=f"random{at}") for at, a in enumerate(products)))

    @property
    def results(self) -> tuple[ValueRange, str]:
        """Range of the products of scale and element."""
        return ValueRange.of(self.a.scale) * ValueRange.of(self.a.element), f"number of {self.a}"


def factors_of(a: Block, b: Block) -> tuple[ValueRange, ValueRange]:
    """Return the ranges of products of two elements and of two scales."""
    return ValueRange.of(a.element) * ValueRange.of(b.element), ValueRange.of(a.scale) * ValueRange.of(b.scale)


def terms_of(a: Block, b: Block, k: int) -> ValueRange:
    """Return the range of scale * scale * the sum of k products of elements."""
    products, scales = factors_of(a, b)
    return scales * products.times(k)


def _products(k: int) -> list[Term]:
    return [term(f"a{index}", f"b{index}", scales=("a_scale", "b_scale")) for index in range(k)]


def _check_lengths(spec: Any) -> None:
    if spec.a.length != spec.b.length:
        raise ValueError(
            f"{spec.a} has {spec.a.length} elements and {spec.b} {spec.b.length}; a product needs one length"
        )


@dataclass(frozen=True)
class BlockDotSpec(BlockSpec, form="blockdot{k} a*b[+c][=o]", summary="dot product of two blocks"):
    """Dot product of k pairs of elements: c + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...), rounded once.

    Parameters
    ----------
    k : int
        Number of pairs; it divides the length of the blocks.
    a, b : Block
        Operands, of one length.
    o : Format
        Format of the result; default: format of ``c``, or fp32 without one.
    c : Format, optional
        Format of the start value; None means that the sum starts from +0.
    """

    BLOCKS = ("a", "b")

    k: int
    a: Block
    b: Block
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    c: Format | None = None

    def check(self) -> None:
        _check_lengths(self)
        check_int("k", self.k, "dot product of blocks", 1)
        if self.a.length % self.k:
            raise ValueError(f"k={self.k} does not divide the {self.a.length} elements of {self.a}")

    @property
    def operands(self) -> dict[str, Format]:
        return super().operands | ({} if self.c is None else {"c": self.c})

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return (*self.block_ports(self.k), *(() if self.c is None else (Port("c", self.c, Role.START),)))

    @property
    def formula(self) -> Formula:
        start = [] if self.c is None else [term("c")]
        return Formula((self.rounded(*_products(self.k), *start, from_zero=not start),))

    @classmethod
    def defaults(cls, a: Any) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"k": lambda: a.length}

    @property
    def default_result(self) -> Format:
        """Format of the start value, or fp32."""
        return self.c or Float(8, 23)

    @property
    def terms(self) -> ValueRange:
        """Range of a product of elements and scales."""
        return terms_of(self.a, self.b, 1)

    @property
    def sums(self) -> ValueRange:
        """Range of the exact sums."""
        products = terms_of(self.a, self.b, self.k)
        return products if self.c is None else products + ValueRange.of(self.c)

    @property
    def results(self) -> tuple[ValueRange, str]:
        return self.sums, f"sum of {self.k} products of {self.a} and {self.b}"

    @property
    def quire(self) -> QuireRegister:
        """Register that holds every sum exactly."""
        return QuireRegister.of(self.terms, self.c, max((self.k + 1).bit_length(), 1))


@dataclass(frozen=True)
class BlockMacSpec(BlockSpec, RunningSumSpec, form="blockmac a*b+acc[=o]", summary="accumulator of dots of blocks"):
    """Multiply-accumulate of blocks: acc <- acc + a_scale * b_scale * (a0 * b0 + a1 * b1 + ...), rounded once a step.

    Other fields are those of `RunningSumSpec`.

    Parameters
    ----------
    a, b : Block
        Operands, of one length.
    o : Format
        Format of results and start values; default: the accumulator's, or fp32 if it is exact.
    step : int
        Number of pairs of elements that a step adds; it divides the length of the blocks. Default: 0, all of a block.
    """

    BLOCKS = ("a", "b")

    a: Block  # type: ignore[assignment]  # other accumulators take numbers
    b: Block
    acc: Format | Literal["exact"]
    o: Format = None  # type: ignore[assignment]  # None asks for the default; after construction it is a format
    carry: int = CARRY_BITS
    interleave: int = 1
    step: int = 0

    def check(self) -> None:
        _check_lengths(self)
        if self.o is None and not isinstance(self.acc, Format):
            object.__setattr__(self, "o", Float(8, 23))
        RunningSumSpec.check(self)
        check_int("step", self.step, "multiply-accumulate of blocks", 0, self.a.length)
        if self.a.length % self.k:
            raise ValueError(f"step={self.step} does not divide the {self.a.length} elements of {self.a}")

    @property
    def k(self) -> int:
        """Number of pairs of elements that a step adds."""
        return self.step or self.a.length

    @property
    def entries(self) -> dict[str, dict[str, Format]]:
        """Ports of the elements of a step and of their scale, for each operand."""
        return {
            name: {f"{name}{index}": block.element for index in range(self.k)} | {f"{name}_scale": block.scale}
            for name, block in (("a", self.a), ("b", self.b))
        }

    @property
    def pairs_per_step(self) -> int:
        return self.k

    def steps(self, k: int) -> int:
        """Return the steps of a sum of k products on an array, padded to whole blocks."""
        return -(-k // self.a.length) * (self.a.length // self.k)

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        return self.block_ports(self.k)

    @property
    def formula(self) -> Formula:
        return self.added(term("sum"), before=(Sum("sum", tuple(_products(self.k)), self.rounding),))

    @classmethod
    def defaults(cls, a: Any) -> dict[str, Callable[[], Any]]:
        return super().defaults(a) | {"acc": lambda: Float(8, 23)}

    @property
    def default_result(self) -> Format:
        """Format of the accumulator; fp32 if it is exact."""
        return self.acc if isinstance(self.acc, Format) else Float(8, 23)

    @property
    def terms(self) -> ValueRange:
        """Range of the numbers that a step adds."""
        return terms_of(self.a, self.b, self.k)

    @property
    def term_name(self) -> str:
        return f"{self.k} products"
