"""Ports of FPnew for the floating-point unit of a processor."""

import itertools
import re

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats import parse
from halfulp.hdl.formats.checks import check_int
from halfulp.hdl.specs.build import MAX_BESIDE
from halfulp.hdl.specs.unit import FLAGS
from halfulp.hdl.wire import lookup

from .fpu import Fpu
from .stream import Streamed
from .verilog import emit

FORMATS = ("fp32", "fp64", "fp16", "e5m2", "bf16", "e4m3")
"""Formats by their codes: FP32, FP64, FP16, FP8, FP16ALT and FP8ALT."""

BY_MODIFIER = {
    0: ("fmadd", "fmsub"),
    1: ("fnmsub", "fnmadd"),
    2: ("add", "sub"),
    3: ("mul", "mul"),
    4: ("div", "div"),
    5: ("sqrt", "sqrt"),
    9: ("classify", "classify"),
    10: ("f2f", "f2f"),
    11: ("f2i", "f2u"),
    12: ("i2f", "u2f"),
}
"""Operations by the code at ``op_i``, without and with ``op_mod_i``."""

BY_ROUNDING = {
    6: (("sgnj", "sgnjn", "sgnjx", "fmvf"), ("sgnj", "sgnjn", "sgnjx", "fmvx")),
    7: (("min", "max"), ("min", "max")),
    8: (("fle", "flt", "feq"), ("fnle", "fnlt", "fne")),
}
"""Operations that the code at ``rnd_mode_i`` chooses."""

ADD = 2

OP_BITS, FORMAT_BITS, ROUNDING_BITS = 4, 3, 3

_HEADER = re.compile(r"^module fpnew_top\b.*?^\);\n", re.MULTILINE | re.DOTALL)
"""Parameters and ports of FPnew's module."""

_OUTPUT = re.compile(r"^\s*output\b[^/\n]*?(\w+)\s*,?\s*(?://.*)?$", re.MULTILINE)

_MASK = "EnableSIMDMask"
"""Parameter of newer versions of FPnew: the port ``simd_mask_i`` hides flags of lanes."""

_BODY = """
  localparam logic [0:7] HAS_FORMAT = 8'b{formats};
  if (Features.Width != {width}) $error("{name} has registers of {width} bits");
  if ($bits(TagType) != {tag}) $error("{name} has tags of {tag} bits");
  for (genvar fmt = 0; fmt < int'(fpnew_pkg::NUM_FP_FORMATS); fmt++) begin : gen_check
    if (Features.FpFmtMask[fmt]) begin : gen_format
      if (!HAS_FORMAT[fmt]) $error("{name} has no format %0d", fmt);
{division}    end
  end
{mask}
  logic [{high}:0] tag;
  assign tag_o = TagType'(tag);
  {name} i_unit (
{connections}
  );
endmodule
"""

_DIVISION = """\
      if (Implementation.UnitTypes[fpnew_pkg::DIVSQRT][fmt] != fpnew_pkg::DISABLED) $error("{name} has no divider");
"""


class FpnewTop(wiring.Component):
    """Floating-point unit with the ports of FPnew's module ``fpnew_top``, for cores that instantiate it.

    Parameters
    ----------
    unit : Fpu
        Unit to wrap, whose rounding is ``port`` or ``port_ro``; it becomes a submodule.
    tag : int
        Bits of ``tag_i`` and ``tag_o``; at least 1.

    Members
    -------
    operands_i : In(3 * width)
        Operands 0, 1 and 2, the first one lowest. A sum is that of operands 1 and 2.
    rnd_mode_i : In(3)
        Rounding mode, or the operation of ``SGNJ``, ``MINMAX`` and ``CMP``.
    op_i : In(4)
        Operation. The unit has no ``CPKAB`` and ``CPKCD``, and without ``divide`` no ``DIV`` and ``SQRT``; their result
        is operand 0.
    op_mod_i : In(1)
        Modifier of the operation. ``SGNJ`` with it is sign-extended only if it moves operand 0.
    src_fmt_i, dst_fmt_i : In(3)
        Codes of formats, in the order of `FORMATS`; others select the first format of the unit.
    int_fmt_i : In(2)
        8, 16, 32 or 64 bits.
    vectorial_op_i : In(1)
    tag_i : In(tag)
    in_valid_i : In(1)
    in_ready_o : Out(1)
    flush_i : In(1)
        Discard all operations in flight.
    result_o : Out(width)
    status_o : Out(5)
        Flags NV, DZ, OF, UF and NX, from bit 4 to bit 0.
    tag_o : Out(tag)
    out_valid_o : Out(1)
    out_ready_i : In(1)
    busy_o : Out(1)
        Operations are in flight.

    Latency
    -------
    ``unit.latency`` cycles without back-pressure, one operation per cycle, results in order. ``in_ready_o`` depends on
    ``out_ready_i`` combinationally. With ``build.iterations``, ``DIV`` and ``SQRT`` take one more cycle and those of
    their digits, and no operation is accepted until their digits are ready.

    Raises
    ------
    TypeError, ValueError
        If ``unit`` is no `Fpu`, has a fixed rounding or a format without a code, or ``tag`` is out of range.

    Source
    ------
    Ports and codes: documentation of FPnew (CVFPU), OpenHW Group.
    """

    def __init__(self, unit: Fpu, *, tag: int = 1) -> None:
        if not isinstance(unit, Fpu):
            raise TypeError(f"FpnewTop takes an Fpu, not {type(unit).__name__}")
        check_int("tag", tag, "wrapper", 1, MAX_BESIDE)
        if not unit.spec.rounding.is_port:
            raise ValueError(f"rnd_mode_i has no effect on the rounding {unit.spec.rounding}; expected port")
        known = [parse(name) for name in FORMATS]
        for fmt in unit.spec.formats:
            if fmt not in known:
                raise ValueError(f"FPnew has no code for {fmt}; its formats are {', '.join(FORMATS)}")
        self.unit, self.tag_bits = unit, tag
        self.codes = {known.index(fmt): place for place, fmt in enumerate(unit.spec.formats)}
        self.name = f"{unit.name}_fpnew_tag{tag}"
        width = unit.spec.width
        super().__init__(
            {
                "operands_i": In(3 * width),
                "rnd_mode_i": In(ROUNDING_BITS),
                "op_i": In(OP_BITS),
                "op_mod_i": In(1),
                "src_fmt_i": In(FORMAT_BITS),
                "dst_fmt_i": In(FORMAT_BITS),
                "int_fmt_i": In(2),
                "vectorial_op_i": In(1),
                "tag_i": In(tag),
                "in_valid_i": In(1),
                "in_ready_o": Out(1),
                "flush_i": In(1),
                "result_o": Out(width),
                "status_o": Out(len(FLAGS)),
                "tag_o": Out(tag),
                "out_valid_o": Out(1),
                "out_ready_i": In(1),
                "busy_o": Out(1),
            }
        )

    @property
    def title(self) -> str:
        """Text of the unit, with its interface."""
        return f"{self.unit.title}, with the ports of FPnew"

    @property
    def latency(self) -> int:
        """Clock cycles from operands to result without back-pressure."""
        return self.unit.latency

    @property
    def _has_registers(self) -> bool:
        return self.latency > 0 or self.unit.latency_varies

    def elaborate(self, platform: object) -> Module:
        m = Module()
        streamed = Streamed(self.unit, user=self.tag_bits)
        m.submodules.streamed = ResetInserter(self.flush_i)(streamed)
        source, sink = streamed.source("i"), streamed.sink()
        first, second, third = (self.operands_i.word_select(place, self.unit.spec.width) for place in range(3))
        adds = self.op_i == ADD
        given = {
            "rs1": Mux(adds, second, first),
            "rs2": Mux(adds, third, second),
            "rs3": third,
            "op": lookup(Cat(self.rnd_mode_i, self.op_mod_i, self.op_i), self._operations),
            "src_fmt": lookup(self.src_fmt_i, self._places),
            "dst_fmt": lookup(self.dst_fmt_i, self._places),
            "int_fmt": self.int_fmt_i,
            "vectorial": self.vectorial_op_i,
            "mode": self.rnd_mode_i,
            "user": self.tag_i,
        }
        m.d.comb += [source.fields[name].eq(value) for name, value in given.items()]
        m.d.comb += [
            source.valid.eq(self.in_valid_i),
            self.in_ready_o.eq(source.ready),
            self.result_o.eq(sink.fields["o"]),
            self.status_o.eq(sink.fields["flags"]),
            self.tag_o.eq(sink.fields["user"]),
            self.out_valid_o.eq(sink.valid),
            sink.ready.eq(self.out_ready_i),
        ]
        if self._has_registers:
            # One operation may wait in front of the stages.
            in_flight = Signal(range(self.latency + self.unit.latency_varies + 1))
            m.d.comb += self.busy_o.eq(in_flight.any())
            arrives, leaves = self.in_valid_i & self.in_ready_o, self.out_valid_o & self.out_ready_i
            m.d.sync += in_flight.eq(Mux(self.flush_i, 0, in_flight + arrives - leaves))
        return m

    def replacement(self, source: str) -> str:
        """Return SystemVerilog of a core's module ``fpnew_top`` with this unit in it.

        Its parameters and ports are those of the core's version of FPnew, whose package ``fpnew_pkg`` it needs.
        Elaboration stops with an error if ``Features`` and ``Implementation`` ask for a width, a format or a division
        that the unit does not have. The unit has its own register stages, whatever ``Implementation`` says.

        Parameters
        ----------
        source : str
            Text of the core's file ``fpnew_top.sv``.

        Raises
        ------
        ValueError
            If the text has no module ``fpnew_top``, or the module has an output that the unit does not have.
        """
        header = _HEADER.search(source)
        if header is None:
            raise ValueError("the source has no module fpnew_top with a list of ports; expected FPnew's fpnew_top.sv")
        for port in _OUTPUT.findall(header[0]):
            if port not in self.signature.members:
                raise ValueError(f"fpnew_top has an output {port}, which FpnewTop does not have")
        controls = {"clk": "clk_i", "rst": "rst_ni"} if self._has_registers else {}
        given = {port: port for port in (*controls.values(), *self.signature.members)}
        connections = given | {"tag_i": f"{self.tag_bits}'(tag_i)", "tag_o": "tag"}
        has_mask = re.search(rf"\b{_MASK}\b", header[0])
        body = _BODY.format(
            name=self.name,
            width=self.unit.spec.width,
            tag=self.tag_bits,
            high=self.tag_bits - 1,
            formats="".join(str(int(code in self.codes)) for code in range(1 << FORMAT_BITS)),
            division="" if self.unit.spec.divide else _DIVISION.format(name=self.name),
            mask=f'  if ({_MASK} != 0) $error("{self.name} has no {_MASK}");\n' if has_mask else "",
            connections=",\n".join(f"    .{port}({value})" for port, value in connections.items()),
        )
        text = emit(self, self.name, reset="async-low" if controls else "sync", ports=controls)
        # The core's files follow, and have no time scale.
        text = re.sub(r"^`timescale .*\n", "", text, flags=re.MULTILINE)
        return f"{text}\n{header[0]}{body}"

    @property
    def _places(self) -> list[int]:
        """Number of the format of the unit for each code."""
        return [self.codes.get(code, 0) for code in range(1 << FORMAT_BITS)]

    @property
    def _operations(self) -> list[int]:
        """Codes of operations of the unit by rounding mode, modifier and operation, the first one lowest."""
        known, codes = self.unit.spec.operations, []
        for op, modifier, mode in itertools.product(range(1 << OP_BITS), range(2), range(1 << ROUNDING_BITS)):
            name = BY_MODIFIER[op][modifier] if op in BY_MODIFIER else "fmvf"
            if op in BY_ROUNDING:
                names = BY_ROUNDING[op][modifier]
                name = names[min(mode, len(names) - 1)]
            codes.append(known.index(name if name in known else "fmvf"))
        return codes
