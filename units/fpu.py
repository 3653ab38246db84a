"""Floating-point unit of a processor."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Out

from halfulp.hdl import fixed
from halfulp.hdl.divide import divide_or_root
from halfulp.hdl.formats import Float, Rounding
from halfulp.hdl.formats.fixed import Fixed
from halfulp.hdl.multiformat import (
    Selection,
    choose,
    common,
    decode,
    either,
    encode,
    normal_or_at_floor,
    one_of_two,
)
from halfulp.hdl.number import add, align, multiply
from halfulp.hdl.raw import OperationFlags, Raw, normalise, of_parts, parts_of
from halfulp.hdl.round import chosen_by
from halfulp.hdl.rows import Iterated, Rows, cycles_of
from halfulp.hdl.specs.build import LAZY
from halfulp.hdl.specs.fpu import DIVISIONS, KINDS, FpuSpec
from halfulp.hdl.specs.unit import FLAGS
from halfulp.hdl.wire import extended, lookup, wire

from .described import Described


class Fpu(Described):
    """Floating-point unit of a processor: operations of RISC-V in several formats, chosen at run time.

    A register holds one number in its low bits, with ones above them (NaN boxing), or with ``vectorial`` as many lanes
    as fit. A scalar operand without these ones reads as NaN. Lane i computes in all formats of which a register holds
    more than i numbers, on one data path: operands are decoded to a common format, and the result is rounded once, at
    the last place of the selected one.

    With ``divide`` and ``build.iterations``, divisions and roots are iterated beside the stages of other operations,
    and enter these after their last digit; until then no operation is accepted.

    Formula
    -------
    ``o = op(rs1, rs2, rs3)``; `halfulp.hdl.specs.fpu` lists the operations.

    Members
    -------
    rs1, rs2, rs3 : In(uint)
        Registers.
    op : In(5)
        Operation: number of its name in `halfulp.hdl.specs.fpu.OPERATIONS`.
    src_fmt, dst_fmt : In
        Formats: ``src_fmt`` of the operands, ``dst_fmt`` of the result and of the addend of sums.
    int_fmt : In(2)
        Width of integers: 8, 16, 32 or 64 bits.
    vectorial : In(1)
        Compute in all lanes.
    o : Out(uint)
        Register of the result.
    o_valid : Out(1)
        The outputs are the result of an accepted operation; present with ``build.iterations``.

    Latency
    -------
    ``stages`` cycles. With ``build.iterations``, that of a division or root is one cycle, those of its digits, and the
    stages.

    Source
    ------
    Operations and results: RISC-V Unprivileged ISA, extensions F, D and Zfh. One data path for several formats: Mach,
    Schuiki, Zaruba and Benini, IEEE Transactions on VLSI Systems 29(4), 2021.
    """

    SPEC = FpuSpec
    multiplies = True
    iterates_beside_stages = True

    @property
    def steps(self) -> int:
        return max(map(self.spec.digits, self.spec.formats)) if self.spec.divide else 0

    @property
    def latency_varies(self) -> bool:
        return self.build.iterations > 0

    @property
    def initiation(self) -> int:
        return 1

    def _latency_of(self, stages: int) -> int:
        return stages

    @property
    def _members(self) -> dict[str, Any]:
        return super()._members | ({"o_valid": Out(1)} if self.latency_varies else {})

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        if self._divider is not None:
            m.submodules.divider = self._divider.m
            valid = self._divider.valid
            for stage in range(1, self.latency + 1):
                register = Signal(name=f"valid_stage{stage}")
                with m.If(self.en):
                    m.d.sync += register.eq(valid)
                valid = register
            m.d.comb += self.o_valid.eq(valid)
        return m

    def logic(self, m: Module) -> None:
        spec = self.spec
        formats, last = spec.formats, len(spec.operations) - 1
        self._divider = _Divider(self) if self.build.iterations else None
        op = self.issued("op")
        self._is = {name: wire(m, _selects(op, code, last), f"is_{name}") for code, name in enumerate(spec.operations)}
        src, dst = (self.selected(m, port, formats) for port in ("src_fmt", "dst_fmt"))
        integer = self.selected(m, "int_fmt", spec.integers)
        lanes = []
        for lane in range(spec.width // min(fmt.width for fmt in formats)):
            held = [fmt for fmt in formats if (lane + 1) * fmt.width <= spec.width]
            integers = [bits for bits in spec.integers if (lane + 1) * bits <= spec.width]
            lanes.append(self._lane(m, lane, held, integers, src, dst, integer))
        self._connect(m, lanes, src, dst, integer)

    def _any(self, *names: str) -> Value:
        """Return True if the operation is one of some."""
        return Cat(self._is[name] for name in names).any()

    def _kind(self, **wanted: Any) -> Value:
        """Return True if the operation is of a kind with some properties."""
        return self._any(
            *(
                name
                for name, kind in KINDS.items()
                if name in self._is and all(getattr(kind, field) == value for field, value in wanted.items())
            )
        )

    def issued(self, port: str) -> Value:
        """Return the code at a port, or that of a division whose digits are ready."""
        value: Value = getattr(self, port) if self._divider is None else self._divider.issued(port)
        return value

    def selected(self, m: Module, port: str, choices: Any) -> dict[Any, Value]:
        """Return the conditions that a port selects one of some choices; a larger code selects the last one."""
        code, last = self.issued(port), len(choices) - 1
        return {
            choice: wire(m, _selects(code, place, last), f"{port}_is_{place}") for place, choice in enumerate(choices)
        }

    # One lane --------------------------------------------------------------------------------------------------

    def _lane(
        self,
        m: Module,
        lane: int,
        formats: list[Float],
        integers: list[int],
        src: Selection,
        dst: Selection,
        integer: Mapping[int, Value],
    ) -> dict[str, Value]:
        """Add a lane, and return its code and its flags."""
        given: dict[str, Value] = {f"is_{name}": condition for name, condition in self._is.items()}
        for place, fmt in enumerate(formats):
            given |= {f"src{place}": src[fmt], f"dst{place}": dst[fmt]}
            low = lane * fmt.width
            given[f"raw{place}"] = self.rs1.as_value()[low : low + fmt.width]
            for port in ("rs1", "rs2", "rs3"):
                given[f"{port}_{place}"] = self.operand(m, port, lane, fmt)
        for place, bits in enumerate(integers):
            given |= {
                f"int{place}": integer[bits],
                f"from{place}": self.rs1.as_value()[lane * bits : (lane + 1) * bits],
            }
        if self.mode is not None:
            given["mode"] = self.issued("mode")
        quotient = None if self._divider is None else self._divider.lane(lane, formats)
        if quotient is not None:
            given |= {f"quotient_{name}": value for name, value in parts_of(quotient).items()}
        logic = partial(_Lane, self, formats, integers, quotient)
        kind = f"lane_of_{len(formats)}_{len(integers)}"
        return self.part(m, f"lane{lane}", kind, lambda m, **signals: logic(m, signals).results(), **given)

    def operand(self, m: Module, port: str, lane: int, fmt: Float) -> Value:
        """Return the code of a lane; a scalar without ones above it is NaN."""
        register: Value = getattr(self, port).as_value()
        code = register[lane * fmt.width : (lane + 1) * fmt.width]
        if lane or fmt.width == self.spec.width:
            return code
        boxed = register[fmt.width :].all() | self.issued("vectorial")
        return wire(m, Mux(boxed, code, fmt.nan_code), f"{port}_unboxed")

    # The register of the result --------------------------------------------------------------------------------

    def _connect(
        self,
        m: Module,
        lanes: list[dict[str, Value]],
        src: Selection,
        dst: Selection,
        integer: Mapping[int, Value],
    ) -> None:
        """Join the codes of lanes to a register, and their flags."""
        width, vectorial = self.spec.width, self.issued("vectorial")
        of_src = wire(m, self._any("fmvx") | self._kind(dst=False, integer=False), "result_of_src")
        of_integer = wire(m, self._any("f2i", "f2u"), "result_of_integer")
        relation = wire(m, self._kind(name="relation"), "result_is_relation")
        uses = {"src": self._kind(src=True), "dst": self._kind(dst=True), "integer": self._kind(integer=True)}

        def has_width(bits: int) -> Value:
            """Return True if the numbers of the result have some bits."""
            found: list[Value] = [src[fmt] & of_src for fmt in src if fmt.width == bits]
            found += [dst[fmt] & ~of_src & ~of_integer for fmt in dst if fmt.width == bits]
            found += [integer[bits] & of_integer] if bits in integer else []
            return Cat(found).any()

        active: list[Value] = [Const(1, 1)]
        for lane in range(1, len(lanes)):
            wide = [src[fmt] & uses["src"] for fmt in src if (lane + 1) * fmt.width > width]
            wide += [dst[fmt] & uses["dst"] for fmt in dst if (lane + 1) * fmt.width > width]
            wide += [integer[bits] & uses["integer"] for bits in integer if (lane + 1) * bits > width]
            active.append(wire(m, vectorial & ~Cat(wide).any(), f"lane{lane}_active"))

        widths = sorted({*(fmt.width for fmt in src), *integer})
        top = lanes[0]["code"]
        sign = Cat(has_width(bits) & top[bits - 1] for bits in widths if bits <= len(top)).any()
        extends = of_integer | self._is["fmvx"]
        filling = wire(m, Mux(extends, ~vectorial & sign, ~relation), "filling")
        register: Value = Cat(top, Const(0, width))[:width]
        for bits in widths:
            codes = [
                Cat(lanes[lane]["code"], Const(0, bits))[:bits] if lane < len(lanes) else None
                for lane in range(width // bits)
            ]
            word = Cat(
                filling.replicate(bits) if code is None else Mux(active[lane], code, filling.replicate(bits))
                for lane, code in enumerate(codes)
            )
            word = Cat(word, filling.replicate(width % bits))
            register = Mux(has_width(bits) & ~(relation & ~vectorial), word, register)
        m.d.comb += self.o.as_value().eq(register)
        flags = [lane["flags"] & here.replicate(len(FLAGS)) for lane, here in zip(lanes, active, strict=True)]
        total: Value = flags[0]
        for more in flags[1:]:
            total = total | more
        m.d.comb += self.flags.eq(total)


def _selects(code: Value, place: int, last: int) -> Value:
    """Return true if a code selects a place; codes above the last place select the last."""
    if place < last:
        return code == place
    return code >= last if last else Const(1, 1)


class _Divider:
    """Divisions and roots of all lanes, iterated beside the unit; the unit rounds them after their last digit.

    Attributes
    ----------
    m : Module
        Its registers and its logic before them.
    """

    PORTS = ("op", "src_fmt", "dst_fmt", "vectorial", "mode")
    """Ports on which the rounding of a quotient depends."""

    def __init__(self, unit: Fpu) -> None:
        self.unit, self.m = unit, Module()
        m, spec, build = self.m, unit.spec, unit.build
        first = len(spec.operations) - len(DIVISIONS)
        waits = Signal(name="division_waits")
        starts = wire(m, unit.valid & (unit.op >= first) & ~waits, "division_starts")
        cycles = [cycles_of(spec.digits(fmt), build.iterations) for fmt in spec.formats]
        cycles += [cycles[-1]] * ((1 << len(unit.dst_fmt)) - len(cycles))
        self.rows = Iterated(unit.steps, build.iterations, m, starts, unit.en, lookup(unit.dst_fmt, cycles))
        with m.If(unit.en):
            m.d.sync += waits.eq(starts | (waits & ~self.rows.ready))
        m.d.comb += unit.ready.eq(~waits)
        self.valid = wire(m, Mux(waits, self.rows.ready, unit.valid & ~starts), "issued_valid")
        self._issued = {
            name: wire(m, Mux(waits, self.rows.held(m, port, f"held_{name}"), port), f"issued_{name}")
            for name in self.PORTS
            if (port := getattr(unit, name)) is not None
        }

    def issued(self, port: str) -> Value:
        """Return the code at a port, or that of the division whose digits are ready."""
        return self._issued.get(port, getattr(self.unit, port))

    def lane(self, lane: int, formats: list[Float]) -> Raw:
        """Return the quotient or root of a lane."""
        unit, m = self.unit, Module()
        self.m.submodules[f"lane{lane}"] = m
        src = unit.selected(m, "src_fmt", unit.spec.formats)
        held = {fmt: src[fmt] for fmt in formats}
        x, y = (
            decode(m, {fmt: unit.operand(m, port, lane, fmt) for fmt in formats}, held, name)
            for port, name in (("rs1", "x"), ("rs2", "y"))
        )
        is_root = wire(m, unit.op >= unit.spec.operations.index("sqrt"), "is_root")
        rows = self.rows.of(max(map(unit.spec.digits, formats)))
        return divide_or_root(m, x, y, is_root, rows)


class _Lane:
    """Logic of a lane: operations in some formats, on codes of one number each."""

    def __init__(
        self,
        unit: Fpu,
        formats: list[Float],
        integers: list[int],
        quotient: Raw | None,
        m: Module,
        signals: Mapping[str, Value],
    ) -> None:
        self.m, self.unit, self.formats, self.integers, self.signals = m, unit, formats, integers, signals
        self.iterated = quotient
        spec = unit.spec
        self.rounding = chosen_by(spec.unit_rounding, signals.get("mode"))
        self.src, self.dst = (
            {fmt: signals[f"{port}{place}"] for place, fmt in enumerate(formats)} for port in ("src", "dst")
        )
        self.int = {bits: signals[f"int{place}"] for place, bits in enumerate(integers)}

    def is_any(self, *names: str) -> Value:
        """Return True if the operation is one of some."""
        return Cat(self.signals[f"is_{name}"] for name in names).any()

    def codes(self, name: str) -> dict[Float, Value]:
        """Return the code of an operand in each format."""
        return {fmt: self.signals[f"{name}{place}"] for place, fmt in enumerate(self.formats)}

    def results(self) -> dict[str, Value]:
        """Return the code of the result, in its lowest bits, and its flags."""
        m = self.m
        rs1, rs2, rs3 = (self.codes(f"{port}_") for port in ("rs1", "rs2", "rs3"))
        sums = self.is_any("add", "sub")
        addend = {fmt: wire(m, Mux(sums, rs2[fmt], rs3[fmt]), "addend_code") for fmt in self.formats}
        x, y = (decode(m, codes, self.src, name) for codes, name in ((rs1, "x"), (rs2, "y")))
        z = decode(m, addend, self.dst, "z")

        number = normal_or_at_floor(m, self._number(x, y, z), self.dst)
        if self.unit.spec.divide:
            number = one_of_two(m, self.is_any(*DIVISIONS), self._quotient(x, y), number, "result")
        magnitude, sign, sum_flags = encode(m, number, self.dst, self.rounding)
        integer, integer_flags = self._to_integer(x)
        selected, relation, relation_flags = self._relations(x, y, rs1, rs2)

        rounded = choose(self.dst, lambda fmt: Cat(magnitude[: fmt.width - 1], sign))
        to_integer = self.is_any("f2i", "f2u")
        is_select, is_relation = (
            wire(m, self.is_any(*(name for name, kind in KINDS.items() if kind.name == wanted)), f"is_{wanted}")
            for wanted in ("select", "relation")
        )
        code = Mux(is_relation, relation, Mux(is_select, selected, Mux(to_integer, integer, rounded)))
        flags = Mux(is_relation | is_select, relation_flags, Mux(to_integer, integer_flags, sum_flags))
        return {"code": wire(m, code, "code"), "flags": wire(m, flags, "lane_flags")}

    def _quotient(self, x: Raw, y: Raw) -> Raw:
        """Return the quotient or root, from the registers of the iterations or from rows that are laid out."""
        if self.iterated is None:
            rows = Rows(max(map(self.unit.spec.digits, self.formats)))
            number = divide_or_root(self.m, x, y, self.is_any("sqrt"), rows)
        else:
            number = of_parts(
                self.iterated, {name: self.signals[f"quotient_{name}"] for name in parts_of(self.iterated)}
            )
        return normalise(self.m, number, "quotient", number.promises.emin - 1, number.base)

    def _number(self, x: Raw, y: Raw, z: Raw) -> Raw:
        """Return the sum or the integer that is rounded: x * y + z, with y = 1 or a zero z if they are not used."""
        m, unit = self.m, self.unit
        o = common(self.src)
        one = wire(m, self.is_any("add", "sub", "f2f"), "factor_is_one")
        none = wire(m, self.is_any("mul", "f2f"), "addend_is_zero")
        minus = self.is_any("fnmsub", "fnmadd")
        y = replace(
            y,
            sign=y.sign & ~one,
            exponent=Mux(one, o.bias, y.exponent),
            significand=Mux(one, 1 << o.man, y.significand),
            nan=y.nan & ~one,
            inf=y.inf & ~one,
            zero=y.zero & ~one,
            flags=OperationFlags(invalid=y.flags.invalid & ~one),
        )
        x = replace(x, sign=wire(m, x.sign ^ minus, "factor_sign"))
        # The sum of a zero and a zero product of the same sign keeps it.
        sign = Mux(none, x.sign ^ y.sign, z.sign ^ self.is_any("fmsub", "fnmadd", "sub"))
        z = replace(
            z,
            sign=wire(m, sign, "addend_sign"),
            exponent=Mux(none, 1, z.exponent),
            significand=z.significand & (~none).replicate(o.precision),
            nan=z.nan & ~none,
            inf=z.inf & ~none,
            zero=z.zero | none,
            flags=OperationFlags(invalid=z.flags.invalid & ~none),
        )
        product = multiply(m, x, y, dsp=unit.build.dsp, to=o, fast=unit.build.has_stages)
        total, _ = add(m, align(m, product, z, o, self.rounding), o, self.rounding, None, LAZY)
        assert isinstance(total, Raw)
        if not self.integers:
            return total
        signed = self.is_any("i2f")
        integers = [
            Cat(source, (source[-1] & signed).replicate(max(self.integers) - bits))
            for bits, source in zip(self.integers, self._sources, strict=True)
        ]
        integer = integers[-1]
        for condition, other in zip(list(self.int.values())[:-1], integers, strict=False):
            integer = Mux(condition, other, integer)
        integer = wire(m, integer, "from_integer")
        negative = wire(m, integer[-1] & signed, "from_negative")
        size = wire(m, ((integer ^ negative.replicate(len(integer))) + negative)[: len(integer)], "from_magnitude")
        return either(m, self.is_any("i2f", "u2f"), total, size, negative)

    @property
    def _sources(self) -> list[Value]:
        """Integers of all widths."""
        return [self.signals[f"from{place}"] for place in range(len(self.integers))]

    def _to_integer(self, x: Raw) -> tuple[Value, Value]:
        """Return the integer of a number, saturated, and its flags; NaN gives the largest one."""
        if not self.integers:
            return Const(0, 1), Const(0, len(FLAGS))
        m, width = self.m, max(self.integers)
        rounding: Rounding = chosen_by(self.unit.spec.rounding, self.signals.get("mode"))
        o = Fixed(width, 0)
        number = fixed.of_raw(m, x, fixed.last_discarded_place(rounding, o), width, "to_integer")
        rounded, inexact = fixed.rounded(m, fixed.truncate(m, number, o), rounding, None)
        rounded = extended(rounded, width + 1)
        negative, unsigned = rounded[-1], self.is_any("f2u")

        def beyond(bits: int) -> Value:
            upper = rounded[bits - 1 :]
            return Mux(unsigned, rounded[bits:].any(), upper.any() & ~upper.all())

        over, least, most = beyond(width), *self._limits(width, unsigned)
        for bits, condition in list(self.int.items())[:-1]:
            of_bits = (beyond(bits), *self._limits(bits, unsigned))
            over, least, most = (Mux(condition, *pair) for pair in zip(of_bits, (over, least, most), strict=True))
        invalid = wire(m, over | x.inf | x.nan, "integer_invalid")
        low = Mux(x.inf, x.sign, negative) & ~x.nan
        code = Mux(invalid, Mux(low, least, most), rounded[:width])
        flags = Cat(inexact & ~invalid, Const(0, 3), invalid)
        return wire(m, code, "integer"), flags

    @staticmethod
    def _limits(bits: int, unsigned: Value) -> tuple[Value, Value]:
        """Return the codes of the smallest and of the largest integer."""
        return (
            Cat(Const(0, bits - 1), ~unsigned),
            Cat(Const((1 << (bits - 1)) - 1, bits - 1), unsigned),
        )

    def _relations(
        self, x: Raw, y: Raw, rs1: Mapping[Float, Value], rs2: Mapping[Float, Value]
    ) -> tuple[Value, Value, Value]:
        """Return a selected or signed operand, a relation or the class, and their flags."""
        m, is_any = self.m, self.is_any
        # Exponents and significands of the common format order magnitudes, those of zeros and infinities too.
        first, second = (Cat(number.significand, number.exponent) for number in (x, y))
        size_less, size_equal = wire(m, first < second, "size_less"), wire(m, first == second, "size_equal")
        unordered = wire(m, x.nan | y.nan, "unordered")
        signalling = x.flags.invalid | y.flags.invalid
        both_zero = x.zero & y.zero
        same_sign = Mux(x.sign, ~size_less & ~size_equal, size_less)
        # With -0 less than +0, as minimum and maximum need it.
        before = wire(m, Mux(x.sign ^ y.sign, x.sign, same_sign), "is_before")
        less = before & ~both_zero & ~unordered
        equal = ((size_equal & ~(x.sign ^ y.sign)) | both_zero) & ~unordered
        holds = (is_any("feq", "fne", "fle", "fnle") & equal) | (is_any("flt", "fnlt", "fle", "fnle") & less)
        holds = wire(m, holds ^ is_any("fne", "fnlt", "fnle"), "relation_holds")
        relation = Mux(is_any("classify"), self._class(x), holds)

        takes_second = wire(m, Mux(unordered, x.nan, before ^ is_any("min")), "takes_second")
        is_order = is_any("min", "max")
        raw = self.codes("raw")
        negative = (is_any("sgnj") & y.sign) | (is_any("sgnjn") & ~y.sign) | (is_any("sgnjx") & (x.sign ^ y.sign))

        def code(fmt: Float) -> Value:
            ordered = Mux(x.nan & y.nan, fmt.nan_code, Mux(takes_second, rs2[fmt], rs1[fmt]))
            injected = Cat(rs1[fmt][:-1], negative)
            return Mux(is_order, ordered, Mux(is_any("fmvf", "fmvx"), raw[fmt], injected))

        quiet = is_any("feq", "fne", "min", "max")
        invalid = Mux(quiet, signalling, unordered & is_any("flt", "fle", "fnlt", "fnle"))
        return wire(m, choose(self.src, code), "selected"), relation, Cat(Const(0, 4), invalid)

    def _class(self, x: Raw) -> Value:
        """Return the class as one of ten bits, in the order of `halfulp.hdl.specs.classify.CLASSES`."""
        o = common(self.src)
        lowest = choose(self.src, lambda fmt: Const(fmt.emin - o.emin + 1, o.exp))
        finite = ~(x.inf | x.nan | x.zero)
        # Subnormal numbers have a lower exponent, or a leading zero at the lowest one.
        small = (x.exponent < lowest) | ~x.significand[-1]
        kinds = (x.inf, finite & ~small, finite & small, x.zero & ~x.nan)
        negative = Cat(kind & x.sign for kind in kinds)
        positive = Cat(kind & ~x.sign for kind in reversed(kinds))
        signalling = x.flags.invalid
        return wire(self.m, Cat(negative, positive, signalling, x.nan & ~signalling), "class_bits")
