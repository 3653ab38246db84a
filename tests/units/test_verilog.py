"""Emitted Verilog: header, ports, names, reset, and lint of four tools."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from halfulp import __version__
from halfulp.fpga.kernel.arrays import kernel
from halfulp.hdl.formats import Rounding, parse
from halfulp.hdl.specs import Build, MacSpec
from halfulp.sim.bench import run
from halfulp.units import AxiStream, Streamed, verilog
from halfulp.units.catalogue import CATALOGUE, component
from halfulp.units.meanings import meanings
from halfulp.units.systolic import Chain, Grid
from halfulp.units.verilog import RESETS, _shape_text, emit, verilog_ports
from tests.short_form import BLOCK, build
from tests.verilog_lint import lint

MAC = "mac e5m2*e5m2+bf16.sr8"


class Counter(wiring.Component):
    """Component without a name."""

    o: Out(8)
    step: In(8)
    en: In(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(8)
        m.d.comb += self.o.eq(count)
        with m.If(self.en):
            m.d.sync += count.eq(count + self.step)
        return m


def label(made: partial[Any]) -> str:
    """Return the name of a test case: what makes its design, and from what."""
    return "-".join(map(str, (made.func.__name__, *made.args, *made.keywords.values())))


def head(text: str) -> str:
    """Return the comment at the beginning of Verilog."""
    return text.partition("\n\n")[0]


def port_list(text: str) -> list[str]:
    """Return the ports of the first module."""
    found = re.search(r"^module \S+?\((.*?)\);", text, re.M | re.S)
    assert found is not None
    return found[1].split(", ")


def test_emit_header_has_text_command_latency_and_ports() -> None:
    unit = component(MAC, Build(pipeline=2))
    text = emit(unit)
    lines = head(text).splitlines()
    assert lines[0] == f"// {unit.name}: {MAC}"
    assert f"halfulp {__version__}: halfulp emit '{MAC}' --pipeline 2" in lines[1]
    assert lines[2] == "// Latency: 3 cycles"
    table = {line.split()[2]: line for line in lines if line.startswith(("// input", "// output"))}
    assert list(table) == port_list(text)
    assert "16  bf16" in table["o"]
    assert "reset, synchronous, active high" in table["rst"]
    assert "// e5m2: float e5m2, bias 15, ieee; sign [7], exponent [6:2], mantissa [1:0]" in lines
    assert "\n`timescale 1ns / 1ps\n" in text
    assert "Combinational" in head(emit(component("mul e5m2*e5m2")))


def test_emit_header_of_stream_has_positions_of_fields() -> None:
    text = emit(Streamed(component("add e5m2+bf16=fp16")))
    assert "a e5m2 [7:0], b bf16 [23:8]" in head(text)
    assert "add e5m2+bf16=fp16.rn" in head(text)
    assert "halfulp emit" not in head(text)


def test_emit_header_has_meanings_of_ports_without_a_format() -> None:
    text = head(emit(component("mac e5m2*e5m2+e6m5.port flags")))
    assert re.search(r"^// input +load +1  the accumulator starts from c$", text, re.M)
    assert re.search(r"^// input +clear +1  the accumulator starts from zero$", text, re.M)
    assert re.search(
        r"^// input +mode +3  rounding mode: 0 to nearest, ties to even; 1 toward zero; 2 down;", text, re.M
    )
    assert re.search(r"^// output +flags +5  exception flags from bit 0 on: inexact, underflow,", text, re.M)
    stream = head(emit(AxiStream(component("mac e5m2*e5m2+e6m5"), tlast=True, tuser=2)))
    assert re.search(r"^// input +s_axis_tlast +1  these operands are the last ones of a sum$", stream, re.M)
    assert re.search(r"^// input +s_axis_tuser +2  comes with the result$", stream, re.M)
    assert re.search(r"^// input +m_axis_tready +1  the result is accepted in this cycle", stream, re.M)
    assert "// load: the accumulator starts from c\n" in stream
    assert "clear" not in stream.partition("e5m2: ")[0].partition("s_axis_tdata")[2]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_port_of_a_unit_has_a_format_or_a_meaning(name: str) -> None:
    takes = CATALOGUE[name].spec.takes
    fmt = next((fmt for fmt in ("e3m2", "fxp4.4") if takes(parse(fmt), None)), BLOCK)
    unit = build(name, fmt, **({"pieces": 2} if name == "pwl" else {}))
    wrapped = AxiStream(unit, tlast=not unit.stateful or "clear" in unit.inputs, tuser=3, tkeep=not unit.stateful)
    for made in (unit, wrapped):
        known = meanings(made)
        ports = {path[0]: member.shape for path, member, _ in made.signature.flatten(made)}
        controls = {"clk", "rst", "en", "valid"}
        assert [port for port in ports.keys() - controls if not (_shape_text(ports[port]) or known.get(port))] == []


def test_header_names_the_format_of_ocp_for_other_formats_of_its_fields() -> None:
    text = emit(component("convert e4m3>e4m3fn"))
    assert "// e4m3: float e4m3, bias 7, ieee, not OCP's E4M3, which is e4m3fn; sign [7]" in text
    assert "// e4m3fn: float e4m3, bias 7, fn; sign [7]" in text
    described = {text: parse(text).describe() for text in ("e5m2", "e2m1", "e2m1fn", "e4m3b8", "e6m5")}
    assert [text for text, words in described.items() if "OCP" in words] == ["e2m1"]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", CATALOGUE)
def test_emit_orders_clock_reset_enable_inputs_outputs(name: str) -> None:
    takes = CATALOGUE[name].spec.takes
    fmt = next((fmt for fmt in ("e3m2", "fxp4.4") if takes(parse(fmt), None)), BLOCK)
    unit = build(name, fmt, pipeline=1, **({"pieces": 2} if name == "pwl" else {}))
    controls = [port for port in ("en", "valid") if hasattr(unit, port)]
    assert port_list(emit(unit)) == ["clk", "rst", *controls, *unit.inputs, *unit.outputs]


def test_case_has_empty_default_only_if_values_are_missing() -> None:
    assert "default: ;" not in emit(component("mac e5m2*e5m2+e6m5"))
    assert "default: ;" in emit(component("pwl tanh(bf16) pieces=4"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [
        partial(component, MAC),
        partial(component, "dot3 e5m2*e5m2"),
        partial(component, "pwl tanh(bf16) pieces=4"),
        # Seeds as parameters need the names, so the array has no random source.
        partial(Grid, mac="e5m2*e5m2+bf16", n=2, m=2),
        partial(Chain, mac="e3m2*e3m2+e4m3", n=2, m=1, depth=8, rows=2),
    ],
    ids=label,
)
def test_emit_replaces_numbers_by_names(made: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are equal up to a one-to-one renaming; ports between modules keep their names."""
    design = made()
    named = emit(design, netlist=True)
    assert not re.search(r"\\(?!\$auto|port)\S*\$\d", named)
    assert re.search(r"wire \w+_part1;", named)
    # Yosys gives the name x[0] to bit 0 of x.
    assert not re.search(r"\\(?!\$auto)\S*\] ", named)
    monkeypatch.setattr(verilog, "_named", lambda module: module[0])
    numbered = emit(design, netlist=True)
    name = re.compile(r"\\\S+ |(?<![\w'])[A-Za-z_]\w*")
    for before, after in zip(*(text.split("\nmodule ") for text in (numbered, named)), strict=True):
        assert name.sub("", before) == name.sub("", after)
        found = ([found.strip("\\ ") for found in name.findall(text)] for text in (before, after))
        pairs = set(zip(*found, strict=True))
        assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})


class Elements(wiring.Component):
    """Component with an array whose register has the name of the port, and elements of their own."""

    x: In(ArrayLayout(8, 4))
    o: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(ArrayLayout(8, 4), name="x")
        m.d.sync += held.eq(self.x)
        m.d.comb += self.o.eq(held[2] ^ self.x[2])
        return m


def test_elements_of_arrays_and_further_signals_of_one_name_are_apart() -> None:
    text = emit(Elements(), "elements", netlist=True)
    declared = re.findall(r"^  (?:wire|reg) (?:\[[^]]*\] )?(\w+)", text, flags=re.M)
    assert "x_2" in declared
    assert len(declared) == len(set(declared))


def test_unit_names_and_texts_use_common_format_names() -> None:
    unit = component("mac e5m10*e8m7+e8m23")
    assert unit.name == "mac_fp16_bf16_fp32_rn"
    lines = head(emit(unit)).splitlines()
    assert lines[0].endswith(": mac fp16*bf16+fp32.rn")
    assert "// bf16: float e8m7, bias 127, ieee; sign [15], exponent [14:7], mantissa [6:0]" in lines


def test_emit_accepts_names() -> None:
    text = emit(component(MAC), "my_mac")
    assert "\nmodule my_mac(" in text
    assert "--name my_mac" in head(text)
    assert "\nmodule Counter(" in emit(Counter())


def test_verilog_ports_accepts_keywords_as_names() -> None:
    class Bit(wiring.Component):
        def __init__(self) -> None:
            super().__init__({"bit": In(3), "o": Out(3)})

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += self.o.eq(self.bit)
            return m

    found = verilog_ports(emit(Bit()), "Bit")
    assert {(port.name, port.direction, port.width) for port in found} == {("bit", "input", 3), ("o", "output", 3)}


def test_verilog_ports_rejects_missing_module() -> None:
    with pytest.raises(ValueError, match="no module nothing"):
        verilog_ports("module something();\nendmodule\n", "nothing")


def test_emit_accepts_reset_styles() -> None:
    texts = {style: emit(Counter(), reset=style) for style in RESETS}
    for style, text in texts.items():
        low, edge = style.endswith("low"), style.startswith("async")
        assert port_list(text)[:3] == ["clk", "rst_n" if low else "rst", "en"]
        assert ("wire rst = ~rst_n;" in text) == low
        assert ("always @(posedge clk, posedge rst)" in text) == edge
        assert ("asynchronous" in head(text), "active low" in head(text)) == (edge, low)


@pytest.mark.slow
def test_reset_less_stages_reset_only_presence_of_operands() -> None:
    """Only the accumulator, the source, and a register of ``valid`` in each of two stages are reset."""
    plain, less = (component(f"{MAC}@lfsr16", Build(pipeline=2, reset_less=value)) for value in (False, True))
    assert (less.name, less.latency) == (f"{plain.name}_reset_less", plain.latency)
    assert emit(less, netlist=True).count("if (rst)") == 4 < emit(plain, netlist=True).count("if (rst)")


@pytest.mark.slow
@pytest.mark.parametrize("text", [f"{MAC}@lfsr16", "quire posit8*posit8", "dot4 e5m2*e5m2 order=sequential"])
def test_reset_less_stages_change_no_result(text: str) -> None:
    assert run(component(text, Build(pipeline=3, reset_less=True)), limit=512).passed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("mul fp16*fp16=fp32", {"pipeline": 2, "dsp": True}),
        ("add fp32+fp32.sr8@lfsr16", {"pipeline": 4}),
        ("add e5m2+e5m2.sr4", {"pipeline": 3, "stochastic": "eager", "reset_less": True}),
        ("fma bf16*bf16+bf16", {"pipeline": 5}),
    ],
)
def test_structures_for_speed_take_other_fields_of_a_build(text: str, options: dict[str, Any]) -> None:
    assert run(component(text, Build(goal="speed", **options)), limit=5_000).passed


@pytest.mark.parametrize(
    ("make", "kind", "word"),
    [
        (lambda: emit(Counter(), "1 bad;name"), ValueError, "1 bad;name"),
        (lambda: emit(Counter(), "module"), ValueError, "reserved word"),
        (lambda: emit(Counter(), ports={"clk": "reg"}), ValueError, "reserved word"),
        (lambda: emit(Counter(), 3), TypeError, "int"),  # type: ignore[arg-type]  # the wrong type
        (lambda: emit(3), TypeError, "int"),
        (lambda: emit(Counter(), reset=5), TypeError, "style of reset must be a string"),  # type: ignore[arg-type]  # the wrong type
        (lambda: emit(Counter(), enable="up"), ValueError, "unknown polarity of a clock enable 'up'"),
        (lambda: emit(Counter(), reset="low"), ValueError, "sync-low"),
        (lambda: emit(component("mul e5m2*e5m2"), reset="async"), ValueError, "no reset"),
        (lambda: component("mul e5m2*e5m2", Build(reset_less=True)), ValueError, "no effect"),
    ],
)
def test_emit_rejects_names_and_resets(make: Any, kind: type[Exception], word: str) -> None:
    with pytest.raises(kind, match=word):
        make()


VERILOG = [
    partial(build, name, fmt, rounding=rounding, pipeline=pipeline)
    for name, row in CATALOGUE.items()
    for fmt, rounding, pipeline in (
        *(("e5m2", "rn", 0), ("e4m3fnuz", "sr3", 2), ("e2m0", "ro", 1), ("bf16-ftz", "rd", 0)),
        *(("posit8", "rn", 0), ("fxp4.4", "sr3", 1)),
    )
    # Fits of functions cover the numbers of a format, and 16-bit formats have many.
    if row.spec.takes(parse(fmt), Rounding.parse(rounding)) and (name != "pwl" or parse(fmt).width <= 8)
]
VERILOG += [
    partial(build, "mac", "posit8", acc="exact", carry=3, product="fxp4.4-wrap.sr2"),
    partial(build, "accumulate", "e5m2", acc="exact", to="posit8", pipeline=2),
    partial(build, "dot", "fxp4.4", k=3, c="posit8", to="e5m2", order="sequential", rounding="sr3", pipeline=2),
    partial(build, "dot", "e5m2", k=3, c="int8", to="ufxp4.4-wrap", rounding="rd"),
]


@pytest.mark.sampled(112, 8)
@pytest.mark.parametrize("made", VERILOG, ids=label)
def test_verilog_of_units_passes_lint(made: Callable[[], Any], tmp_path: Path) -> None:
    """As Verilog 2005, and inside the stream wrapper of the unit."""
    unit = made()
    path = tmp_path / "unit.v"
    path.write_text(emit(Streamed(unit)))
    lint([path], Streamed(unit).name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "made",
    [
        partial(component, "pwl tanh(bf16) pieces=4"),
        partial(Grid, mac="e3m2*e3m2+e4m3.sr3@lfsr8", n=2, m=1),
        partial(Chain, mac="e3m2*e3m2+e4m3", n=1, m=1, depth=8, rows=2),
        pytest.param(partial(kernel, MacSpec.parse("e4m3fn*e4m3fn+fp16"), 2, 2, 8), marks=pytest.mark.slow),
    ],
    ids=label,
)
def test_verilog_of_functions_and_arrays_passes_lint(made: Callable[[], Any], tmp_path: Path) -> None:
    design = made()
    path = tmp_path / "design.v"
    path.write_text(emit(design))
    lint([path], design.name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "text",
    ["dot{} e2m1*e2m1+fp16", "dot{} e2m1*e2m1+e3m2.sr3 order=sequential", "sru fxp4.4>fxp2.2.sr2@plateau2 lanes={}"],
)
def test_unit_verilog_has_each_part_once(text: str) -> None:
    few, more = (emit(component(text.format(count))) for count in (3, 6))
    assert few.count("\nmodule ") == more.count("\nmodule ") > 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [Chain, Grid])
def test_array_verilog_has_each_part_once(kind: Any) -> None:
    """Lines grow by less than a tenth of those of a multiply-accumulate for each further one; seeds are parameters."""
    mac = "e5m2*e5m2+e6m5.sr10@lfsr16"
    small, large = (emit(kind(mac=mac, n=n, m=m)) for n, m in ((2, 2), (5, 6)))
    for text in (small, large):
        names = re.findall(r"^module (\S+)", text, re.M)
        assert len(names) == len(set(names))
        assert sum(".step_mac_" in name or ".mac_" in name for name in names) == 1
    assert large.count("\n") - small.count("\n") < 26 * 40
    row, seeds = (5, 6), kind(mac=mac, n=5, m=6).seeds
    found = re.findall(r"#\(\.row\(3'h(\d)\), \.seeds\(96'h([0-9a-f]+)\)\)", large)
    assert [int(one) for one, _ in found] == list(range(row[0]))
    expected = [[seeds[place * row[1] + lane] for lane in range(row[1])] for place in range(row[0])]
    assert [[int(states, 16) >> 16 * lane & 0xFFFF for lane in range(row[1])] for _, states in found] == expected
