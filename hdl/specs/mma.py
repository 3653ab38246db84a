"""Descriptions of the matrix units of accelerators: chains of dot products with their own alignment and rounding."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from halfulp.hdl.formats.base import Family, Format
from halfulp.hdl.formats.block import Block
from halfulp.hdl.formats.catalogue import is_block_text, parse
from halfulp.hdl.formats.checks import check_int, did_you_mean
from halfulp.hdl.formats.floating import Float
from halfulp.hdl.formats.rounding import RN, RZ, Rounding

from .formula import Call, Formula, Function, Port, Role, vector
from .unit import UnitSpec

ORDERS = ("aligned", "exact", "pairwise", "staged")
"""Orders of the sum of a step."""

_NAMED = re.compile(r"(?P<name>\w+\.\w+): *(?P<a>[^*]+)\*(?P<b>[^+]+)\+(?P<o>\w+)(?P<words>( [a-z]+=\S+)*)")


@dataclass(frozen=True)
class MmaSpec(UnitSpec, form="mma{k} a*b+o", summary="step of a matrix unit of an accelerator"):
    """Matrix unit: a product of K elements is a chain of steps of k elements, acc <- step(a, b, acc).

    The unit computes one step, with the accumulator as the start value ``c``. A text such as
    ``mma32 e4m3fn*e4m3fn+fp32.rz order=aligned13 zero=-133 through=e8m13`` has all parameters; names of
    `MATRIX_UNITS`, and a unit with formats, are texts as well.

    Parameters
    ----------
    k : int
        Products of a step.
    a, b : Float or Block
        Formats of the operands.
    o : Float
        Format of the accumulator and the result, with infinities and NaN.
    rounding : Rounding
        Rounding of the sum of a step, ``rn`` or ``rz``. An overflow is an infinity in both.
    order : str
        ``aligned25``: terms are the k products and the accumulator. Significands are those of the codes, products of
        them are not normalised, and a subnormal number has the exponent of the smallest normal one. All terms are
        truncated to 25 bits after the point of the largest exponent and added exactly; a sum of zero is +0.
        ``exact``: the exact sum of all terms is rounded.
        ``pairwise4``: subnormal operands become +0, and at the beginning of a step the accumulator too. Products are
        rounded to nearest; of each four of them, neighbours are added, then sums of neighbours, and the last
        sum to the accumulator; each addition is rounded to nearest, and a subnormal result is zero of its sign.
        ``staged24``: products are truncated to 24 bits after the point of their largest exponent and added;
        their sum is rounded down to 32 bits after the point of the larger exponent of it and the accumulator, and the
        accumulator to 24 bits; the sum of both is normalised and rounded down to 31 bits, then as
        ``rounding`` says. A product of 2^(emax + 1) or more is infinite, where emax is the largest exponent of ``o``.
        Other numbers: 2 to 40 bits, with ``staged`` up to 31; with ``pairwise`` the products of a group, 2 or 4.
    zero : int, optional
        Exponent of terms that are zero, for ``aligned``; it counts among the exponents.
    through : Float, optional
        Format to which a sum is rounded first. It has the exponent bits of ``o`` and fewer mantissa bits.
    group : int
        Number of products in blocks that are added exactly before ``aligned`` sums. A group has the exponent of the
        product of its scales; it is zero if all its products or a scale are.
    halves : int
        2: with ``staged``, products with even and with odd indices are two such sums, each rounded down to
        ``fraction`` bits of the larger exponent and added; an accumulator below 2^-(fraction + 1) of the largest
        exponent is dropped.
    every : int, optional
        Sums of this many elements start from +0, and are added to the result one after the other, rounded to nearest
        in ``o``: the accumulation in software of DeepSeek-V3 (arXiv 2412.19437, section 3.3.2).
    rows, columns : int
        Rows of ``a`` and columns of ``b`` in a step. Each row and column have an accumulator and a result.

    Raises
    ------
    TypeError, ValueError
        If a parameter is invalid or has no effect.

    Notes
    -----
    Sources: Xie, Wang, Yang, Yang, MMA-Sim, arXiv 2511.10909 (2025); Khattak, Mikaitis, Accurate Models of NVIDIA
    Tensor Cores, arXiv 2512.07004 (2025).
    """

    PORT = False
    OWN_RESULTS = True
    NO_FLAGS = "matrix units of accelerators raise none"

    k: int
    a: Float | Block
    b: Float | Block
    o: Float
    order: str = "exact"
    zero: int | None = None
    through: Float | None = field(default=None, metadata={"read": parse})
    group: int = 1
    halves: int = 1
    every: int | None = None
    rows: int = 1
    columns: int = 1

    def check(self) -> None:
        check_int("k", self.k, "matrix unit", 1, 1024)
        check_int("rows", self.rows, "matrix unit", 1, 64)
        check_int("columns", self.columns, "matrix unit", 1, 64)
        if not isinstance(self.order, str):
            raise TypeError(f"order must be a string, not {type(self.order).__name__}")
        if self.kind not in ORDERS:
            raise ValueError(f"unknown order {self.order!r}; expected one of {', '.join(ORDERS)}, with a number")
        blocks = [fmt.shares_scale for fmt in (self.a, self.b)]
        for name in ("a", "b"):
            fmt = getattr(self, name)
            self._check_element(name, fmt.element if fmt.shares_scale else fmt)
        o = self.o
        if not isinstance(o, Float) or o.specials != "ieee" or not o.subnormals or o.exp > FP32.exp or o.man > FP32.man:
            raise ValueError(
                f"the accumulator of a matrix unit is a float with infinities, up to 8 exponent bits and 23 mantissa "
                f"bits, such as fp32 or fp16, not {o}"
            )
        if self.rounding not in (RN, RZ):
            raise ValueError(f"the rounding of a matrix unit is rn or rz, not {self.rounding}")
        if self.saturate or self.random is not None:
            raise ValueError("an overflow of a matrix unit is an infinity, and it has no random words")
        if blocks[0] != blocks[1]:
            raise ValueError(f"both operands of a matrix unit are in blocks, or none is, not {self.a} and {self.b}")
        self._check_sums()
        self._check_results()
        if isinstance(self.a, Block) and isinstance(self.b, Block):
            self._check_blocks(self.a, self.b)
        elif self.group != 1:
            raise ValueError(f"group={self.group} needs operands in blocks")

    @staticmethod
    def _check_element(name: str, element: Any) -> None:
        if not isinstance(element, Float):
            raise TypeError(f"{name} of a matrix unit must be a float or a block of floats, not {element}")
        if not _is_operand(element):
            raise ValueError(
                f"{name} of a matrix unit has up to {OPERAND_BITS} bits and the range of fp32; {element} has "
                f"{element.width} bits and numbers from 2^{element.quantum} to 2^{element.emax + 1}"
            )

    def _check_blocks(self, *blocks: Block) -> None:
        """Raise ValueError if blocks do not fit the steps, or their numbers the exact sums of groups."""
        if self.kind != "aligned":
            raise ValueError(f"operands in blocks have aligned sums, not {self.order}")
        if self.group == 1:
            if any(block.length != self.k or isinstance(block.scale, Float) for block in blocks):
                raise ValueError(
                    f"a step of {self.k} products without groups is one block of as many elements, with a scale such "
                    f"as e8m0fnu, not {blocks[0]}*{blocks[1]}"
                )
            return
        if any(block.length % self.group or self.k % block.length for block in blocks):
            raise ValueError(f"groups of {self.group} must divide blocks, and blocks steps of {self.k}")
        for block in blocks:
            if isinstance(block.scale, Float) and (block.scale.has_inf or block.scale.man > 3):
                raise ValueError(f"scales of groups have no infinity and up to 3 mantissa bits, unlike {block.scale}")
        bits = [fmt.precision + fmt.emax - fmt.emin for fmt in self.elements]
        if (
            sum(bits) + self.group.bit_length() > 31
            or (self.fraction or 0)
            + sum(fmt.emax + 1 for fmt in self.elements)
            + self.group.bit_length()
            + self.k.bit_length()
            > 58
        ):
            raise ValueError(f"exact sums of {self.group} products of {blocks[0]} and {blocks[1]} have too many bits")

    def _check_sums(self) -> None:
        """Raise TypeError or ValueError if a parameter of sums is missing, out of range or without effect."""
        needs = {"aligned": ("fraction", "zero"), "exact": (), "pairwise": ("fraction",), "staged": ("fraction",)}
        for name in ("fraction", "zero"):
            if (getattr(self, name) is None) == (name in needs[self.kind]):
                raise ValueError(f"order {self.kind} {'needs' if name in needs[self.kind] else 'takes no'} {name}")
        if self.fraction is not None:
            check_int("fraction", self.fraction, "matrix unit", 2, 31 if self.kind == "staged" else 40)
        if self.kind == "pairwise" and (self.fraction not in (2, 4) or self.k % (self.fraction or 1)):
            raise ValueError(f"pairwise sums have 2 or 4 products, which divide the step of {self.k}")
        if self.zero is not None:
            check_int("zero", self.zero, "matrix unit", -500, 200)
        if self.halves not in (1, 2) or (self.halves == 2 and (self.kind != "staged" or self.k % 2)):
            raise ValueError(f"halves=2 is for staged sums of an even number of products, not {self.order}")

    def _check_results(self) -> None:
        """Raise TypeError or ValueError if the order has other results, or ``every`` does not fit."""
        if self.through is not None:
            narrower = isinstance(self.through, Float) and self.through == replace(self.o, man=self.through.man)
            if not narrower or self.through.man >= self.o.man or self.kind != "aligned":
                raise ValueError(
                    f"a format before {self.o} has its exponent bits and fewer mantissa bits, for aligned sums, unlike "
                    f"{self.through}"
                )
        if self.kind in ("pairwise", "staged", "exact") and self.rounding != RN:
            raise ValueError(f"order {self.order} rounds to nearest, not {self.rounding}")
        if self.every is not None:
            check_int("every", self.every, "matrix unit", 1, 1 << 20)
            if self.every % self.k:
                raise ValueError(f"every={self.every} must be a multiple of the step of {self.k}")

    @cached_property
    def _order(self) -> tuple[str, str]:
        match = re.fullmatch(r"([a-z]+)([0-9]*)", self.order)
        return (match[1], match[2]) if match else (self.order, "")

    @property
    def kind(self) -> str:
        """Order without its number: one of `ORDERS`."""
        return self._order[0]

    @property
    def fraction(self) -> int | None:
        """Number in the order."""
        return int(self._order[1]) if self._order[1] else None

    @classmethod
    def named(cls, text: str) -> Self | None:
        """Return the description of a text with the name of a matrix unit; None for others.

        ``h100.wgmma.e4m3`` is a name, ``h100.wgmma: e4m3fn*e5m2+fp32`` chooses formats, and ``every=128`` may follow.

        Raises
        ------
        ValueError
            If there is no such unit, or it does not have these formats.
        """
        return _named(" ".join(text.split())) if _is_name(text) else None

    @staticmethod
    def is_mma_text(text: object) -> bool:
        """Return True for a text that begins as that of a matrix unit does."""
        if not isinstance(text, str):
            return False
        return re.match(r"mma[0-9]", text) is not None or _is_name(text)

    @classmethod
    def read_part(cls, part: str, text: str) -> Any:
        return text if isinstance(text, Block) else _format(text)

    @classmethod
    def takes(cls, fmt: Any, rounding: Rounding | None) -> bool:
        """Return True for floats that are operands of matrix units, rounded to nearest or toward zero."""
        return rounding in (None, RN, RZ) and isinstance(fmt, Float) and _is_operand(fmt)

    @classmethod
    def has_effect(cls, name: str) -> bool:
        """Return True if a field may have another value than its default."""
        return name not in ("saturate", "random", "seed") and super().has_effect(name)

    @classmethod
    def defaults(cls, a: Format) -> dict[str, Callable[[], Any]]:
        """Return the fields of a unit of Hopper and Blackwell with results in fp32."""
        more = {"k": 4, "o": FP32, "rounding": RZ, "order": "aligned25", "zero": -133}
        return super().defaults(a) | {name: lambda value=value: value for name, value in more.items()}

    @property
    def block_parts(self) -> tuple[str, ...]:
        return tuple(name for name in ("a", "b") if isinstance(getattr(self, name), Block))

    @property
    def operands(self) -> dict[str, Format]:
        """Formats of elements, of scales of blocks, and of the accumulator by name."""
        formats: dict[str, Format] = {}
        for name in ("a", "b"):
            fmt = getattr(self, name)
            shares = isinstance(fmt, Family) and fmt.shares_scale
            formats |= {name: fmt.element, f"{name}_scale": fmt.scale} if shares else {name: fmt}
        return formats | {"c": self.o}

    @property
    def lanes(self) -> int:
        """Number of accumulators of a step."""
        return self.rows * self.columns

    @property
    def one_lane(self) -> Self:
        """Description of the step of one row and one column."""
        return replace(self, rows=1, columns=1)

    @property
    def operand_ports(self) -> tuple[Port, ...]:
        counts = {"a": self.rows, "b": self.columns}
        scales: list[Port] = []
        for name in self.block_parts:
            block, port = getattr(self, name), f"{name}_scale"
            several = vector(port, counts[name] * self.k // block.length, block.scale, Role.SCALE)
            scales += several if self._has_vector(name) else [Port(port, block.scale, Role.SCALE)]
        elements = zip(("a", "b"), self.elements, strict=True)
        factors = [port for name, fmt in elements for port in vector(name, counts[name] * self.k, fmt)]
        starts = vector("c", self.lanes, self.o, Role.START) if self.lanes > 1 else (Port("c", self.o, Role.START),)
        return (*factors, *scales, *starts)

    def _has_vector(self, name: str) -> bool:
        """Return True if the scales of ``a`` or ``b`` are a vector."""
        return self.group > 1 or (self.rows if name == "a" else self.columns) > 1

    def lane_ports(self, row: int, column: int) -> tuple[str, ...]:
        """Return the names of the ports of a row and a column, in the order of those of `one_lane`."""
        places = {"a": row, "b": column}
        names = [f"{name}{place * self.k + index}" for name, place in places.items() for index in range(self.k)]
        for name in self.block_parts:
            count = self.k // getattr(self, name).length
            several = [f"{name}_scale{places[name] * count + index}" for index in range(count)]
            names += several if self._has_vector(name) else [f"{name}_scale"]
        return (*names, f"c{row * self.columns + column}" if self.lanes > 1 else "c")

    @property
    def formula(self) -> Formula:
        names = tuple(f"o{lane}" for lane in range(self.lanes)) if self.lanes > 1 else ("o",)
        return Formula((Function(names, Call("mma", tuple(port.name for port in self.operand_ports))),))

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the golden function."""
        return {name: value for name, value in super().parameters.items() if self.has_effect(name)}

    @property
    def expression(self) -> str:
        """Name of the unit and ``every``, if it is the only name of this description; else the text."""
        names = _names().get(replace(self, every=None), [])
        every = "" if self.every is None else f" every={self.every}"
        return names[0] + every if len(names) == 1 else self.text

    def check_one_sum(self) -> None:
        """Raise ValueError if the unit has several rows or columns, which a product of matrices has of its own."""
        if self.lanes > 1:
            raise ValueError(
                f"rows={self.rows} and columns={self.columns} are of a unit in RTL; a product of matrices has those of "
                "its operands, so omit them"
            )

    @property
    def nan_code(self) -> int:
        """Code of NaN results: all ones but the sign, where sums are aligned or staged."""
        ones = self.kind in ("aligned", "staged")
        return (1 << (self.o.width - 1)) - 1 if ones else self.o.nan_code

    @property
    def elements(self) -> tuple[Float, Float]:
        """Formats of the elements of both operands."""
        a, b = (fmt.element if isinstance(fmt, Block) else fmt for fmt in (self.a, self.b))
        assert isinstance(a, Float)
        assert isinstance(b, Float)
        return a, b


OPERAND_BITS = 19
"""Largest width of an operand: that of tf32."""

FP32 = Float(8, 23)


def _is_operand(fmt: Float) -> bool:
    """Return True for a float that may be an operand."""
    return fmt.width <= OPERAND_BITS and fmt.quantum >= FP32.quantum and fmt.emax <= FP32.emax


@dataclass(frozen=True)
class MatrixUnit:
    """Matrix unit of an accelerator.

    Attributes
    ----------
    device : str
        Architecture, and a device of it.
    source : str
        Publication of its arithmetic.
    steps : dict of str to int
        Products of a step by the names of operand formats. A mixture has the parameters of its first operand; one of
        mxfp4 and wider elements, those of the other.
    order : str
    fraction : dict of str to int, or int
        Bits after the point, by the format of the first operand or for all.
    zero : dict of str to int
        Exponent of zero terms by the format of the result.
    other : dict
        Other parameters by the format of the first operand.
    """

    device: str
    source: str
    steps: dict[str, int]
    order: str
    fraction: Any = None
    zero: Any = None
    other: Any = None

    def spec(self, a: str, b: str, o: str) -> MmaSpec:
        """Return the description for formats; ValueError if the unit does not have them."""
        results = self.zero or {"fp32": 0}
        if a not in self.steps or b not in self.steps or o not in results or not self._mixes(a, b, o):
            raise ValueError(
                f"no {a}*{b}+{o}: its operands are {', '.join(self.steps)}, its results {', '.join(results)}"
            )
        row = b if a in _FOUR and b in _MX else a
        fraction = self.fraction.get(row) if isinstance(self.fraction, dict) else self.fraction
        rounding = RZ if self.order == "aligned" and o == "fp32" else RN
        more = dict((self.other or {}).get(row, {}))
        if o != "fp32":
            more.pop("through", None)
        zero = None if self.zero is None else more.pop("zero", self.zero[o])
        x, y, result = map(_format, (a, b, o))
        order = f"{self.order}{'' if fraction is None else fraction}"
        return MmaSpec(self.steps[row], x, y, result, order, zero, rounding=rounding, **more)

    def _mixes(self, a: str, b: str, o: str) -> bool:
        """Return True for formats that one instruction has: floats of up to 8 bits mix, and so do blocks of 32."""
        blocks = _MX | {"mxfp4"}
        same = a == b or (a in _NARROW and b in _NARROW and self.steps[a] == self.steps[b]) or {a, b} <= blocks
        wide = a in ("bf16", "tf32") or a in _MX or a in _FOUR
        return same and not (o == "fp16" and wide)


_NARROW = {"e4m3fn", "e5m2", "e3m2fn", "e2m3fn", "e2m1fn", "e4m3fnuz", "e5m2fnuz"}
_MX = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3"}
_FOUR = {"mxfp4", "nvfp4"}

_XIE = "Xie et al. 2025, arXiv 2511.10909"

_FP8, _FP6_FP4 = ("e4m3fn", "e5m2"), ("e3m2fn", "e2m3fn", "e2m1fn")


def _zeros(fp32: int, fp16: int) -> dict[str, int]:
    return {"fp32": fp32, "fp16": fp16}


def _through(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    return {name: {"through": parse("e8m13")} for name in names}


_GROUPS = {"group": 16, "zero": -139}
_BLOCKS = dict.fromkeys(sorted(_MX), 32) | {"mxfp4": 64, "nvfp4": 64}
_BLOCK_BITS = dict.fromkeys(sorted(_MX), 25) | {"mxfp4": 35, "nvfp4": 35}
_WIDE = {"fp16": 16, "bf16": 16, "tf32": 8}
_ALL = _WIDE | dict.fromkeys((*_FP8, *_FP6_FP4), 32)
_HALF = {"fp16": 8, "bf16": 8, "tf32": 4}

_BLACKWELL = MatrixUnit(
    "Blackwell",
    _XIE,
    _ALL | _BLOCKS,
    "aligned",
    dict.fromkeys(_ALL, 25) | _BLOCK_BITS,
    _zeros(-133, -21),
    dict.fromkeys(_FOUR, _GROUPS),
)

UNITS_BY_NAME: dict[str, MatrixUnit] = {
    "v100.mma": MatrixUnit("Volta", _XIE, {"fp16": 4}, "aligned", 23, _zeros(-131, -20)),
    "t4.mma": MatrixUnit("Turing", _XIE, {"fp16": 8}, "aligned", 24, _zeros(-132, -21)),
    "a100.mma": MatrixUnit("Ampere", _XIE, _HALF, "aligned", 24, _zeros(-132, -21)),
    "l40s.mma": MatrixUnit(
        "Ada Lovelace",
        _XIE,
        _HALF | dict.fromkeys(_FP8, 16),
        "aligned",
        dict.fromkeys(_HALF, 24) | dict.fromkeys(_FP8, 13),
        _zeros(-132, -21),
        _through(_FP8),
    ),
    "h100.mma": MatrixUnit("Hopper", _XIE, _WIDE, "aligned", 25, _zeros(-133, -21)),
    "h100.wgmma": MatrixUnit(
        "Hopper",
        _XIE,
        _WIDE | dict.fromkeys(_FP8, 32),
        "aligned",
        dict.fromkeys(_WIDE, 25) | dict.fromkeys(_FP8, 13),
        _zeros(-133, -21),
        _through(_FP8),
    ),
    "b200.mma": MatrixUnit("Blackwell", _XIE, _WIDE, "aligned", 25, _zeros(-133, -21)),
    "b200.tcgen05": _BLACKWELL,
    "rtx5090.mma": replace(_BLACKWELL, device="RTX Blackwell"),
    "mi100.mfma": MatrixUnit("CDNA1", _XIE, {"fp16": 4, "bf16": 2}, "exact"),
    "mi250.mfma": MatrixUnit("CDNA2", _XIE, {"fp16": 16, "bf16": 8}, "pairwise", {"fp16": 4, "bf16": 2}),
    "mi250.mfma_1k": MatrixUnit("CDNA2", _XIE, {"bf16": 16}, "pairwise", 4),
    "mi300.mfma": MatrixUnit(
        "CDNA3",
        _XIE,
        {"fp16": 8, "bf16": 8, "tf32": 4, "e4m3fnuz": 16, "e5m2fnuz": 16},
        "staged",
        24,
        other={name: {"halves": 2} for name in ("e4m3fnuz", "e5m2fnuz")},
    ),
}
"""Matrix units by name."""

_DEVICES, _INSTRUCTIONS = ({name.split(".")[part] for name in UNITS_BY_NAME} for part in (0, 1))


def _is_name(text: str) -> bool:
    """Return True for a text that begins as names of matrix units do: with a device, or a word and an instruction."""
    device, instruction = [*re.split("[.:]", text.strip().lower(), maxsplit=2), ""][:2]
    return device in _DEVICES or (device.isalnum() and instruction in _INSTRUCTIONS)


def _rows() -> dict[str, MmaSpec]:
    made = {}
    for name, unit in UNITS_BY_NAME.items():
        for fmt in unit.steps:
            for result in unit.zero or ("fp32",):
                if unit._mixes(fmt, fmt, result):
                    short = fmt.removesuffix("uz").removesuffix("fn") if fmt in _NARROW else fmt
                    made[f"{name}.{short}{'' if result == 'fp32' else '.fp16'}"] = unit.spec(fmt, fmt, result)
    return made


@functools.lru_cache(maxsize=256)
def _named(text: str) -> Any:
    head, *words = text.split(" ")
    if head in MATRIX_UNITS:
        return _with_words(MATRIX_UNITS[head], words)
    match = _NAMED.fullmatch(text)
    if match is None:
        expected = "expected a name of `halfulp list matrix-units`, or h100.wgmma: e4m3fn*e4m3fn+fp32, for example"
        raise ValueError(f"invalid matrix unit {text!r}: {did_you_mean(text, MATRIX_UNITS, expected)}")
    if match["name"] not in UNITS_BY_NAME:
        raise ValueError(f"unknown matrix unit {match['name']}: expected {', '.join(UNITS_BY_NAME)}")
    try:
        spec = UNITS_BY_NAME[match["name"]].spec(*(match[part].strip() for part in ("a", "b", "o")))
    except ValueError as error:
        raise ValueError(f"{match['name']} has {error}") from None
    return _with_words(spec, match["words"].split())


def _format(text: str) -> Any:
    return Block.parse(text) if is_block_text(text) else parse(text)


MATRIX_UNITS: dict[str, MmaSpec] = _rows()
"""Descriptions by name: device, instruction and operand format, and ``.fp16`` for results in fp16."""


@functools.cache
def _names() -> dict[MmaSpec, list[str]]:
    """Return the names of each description; devices with equal units share one."""
    names: dict[MmaSpec, list[str]] = {}
    for name, spec in MATRIX_UNITS.items():
        names.setdefault(spec, []).append(name)
    return names


def _with_words(spec: MmaSpec, words: list[str]) -> MmaSpec:
    """Return the description with ``every=``, ``rows=`` and ``columns=``."""
    given = dict(word.partition("=")[::2] for word in words)
    if given.keys() - {"every", "rows", "columns"}:
        raise ValueError(f"a named matrix unit takes every=N, rows=N and columns=N only, not {', '.join(words)}")
    for name, number in given.items():
        if not number.isdigit():
            raise ValueError(f"expected a number after {name}=, not {number!r}")
    numbers: dict[str, Any] = {name: int(number) for name, number in given.items()}
    return replace(spec, **numbers)


def listing() -> list[str]:
    """Return lines with names, descriptions, devices and sources."""
    width = max(map(len, MATRIX_UNITS))
    units = {name: UNITS_BY_NAME[".".join(name.split(".")[:2])] for name in MATRIX_UNITS}
    sources = {unit.source for unit in units.values()}
    lines = [f"{name:{width}}  {units[name].device:13}  {spec}" for name, spec in MATRIX_UNITS.items()]
    return [*lines, f"Sources: {'; '.join(sorted(sources))}; facts on these units as of November 2026"]
