"""Verilog for readers: the logic of the netlist that simulation and synthesis read, with names of values."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from pyosys import libyosys

from examples.dot_product import DotProduct
from halfulp.fpga.package import files
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import Build
from halfulp.sim.build import Design
from halfulp.sim.driver import DriverPorts
from halfulp.sim.model import CompiledModel
from halfulp.sim.reference import reference
from halfulp.units import Streamed
from halfulp.units.catalogue import CATALOGUE, component
from halfulp.units.readable import expressions, readable
from halfulp.units.readable.passes import inline_temporaries
from halfulp.units.readable.statements import parse as parse_module
from halfulp.units.readable.text import text_of_module
from halfulp.units.systolic import Chain
from halfulp.units.verilog import emit
from tests.every_unit import vectors
from tests.short_form import BLOCK, build
from tests.test_verilog import Counter, lint, port_list


class Sums(wiring.Component):
    """Running sum of a stream."""

    i: In(stream.Signature(data.StructLayout({"x": 8, "y": 8, "last": 1})))
    o: Out(stream.Signature(16))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        total = Signal(16)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += total.eq(total + (self.i.payload.x ^ self.i.payload.y))
        m.d.comb += [self.o.payload.eq(total), self.o.valid.eq(self.i.payload.last), self.i.ready.eq(self.o.ready)]
        return m


class Design2(wiring.Component):
    """A user's design with a component of its own and a unit, whose operands are parts of other signals."""

    name = "design"
    i: In(stream.Signature(data.StructLayout({"x": 8, "y": 8, "last": 1})))
    o: Out(stream.Signature(16))
    k: In(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sums = sums = Sums()
        m.submodules.add = add = component("add bf16+bf16", Build(pipeline=1))
        wiring.connect(m, wiring.flipped(self.i), sums.i)
        m.d.comb += [
            add.a.as_value().eq(sums.o.payload),
            add.b.as_value().eq(Cat(self.k, self.i.payload.x, self.k)),
            add.en.eq(sums.o.valid),
            self.o.payload.eq(add.o),
            self.o.valid.eq(sums.o.valid),
            sums.o.ready.eq(self.o.ready),
        ]
        return m


class Memory(wiring.Component):
    """Register without a reset."""

    i: In(8)
    o: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(8, reset_less=True)
        m.d.sync += held.eq(self.i)
        m.d.comb += self.o.eq(held)
        return m


def row_unit(name: str, pipeline: int) -> Any:
    """Return a small unit of a row of the catalogue."""
    takes = CATALOGUE[name].spec.takes
    fmt = next((fmt for fmt in ("e3m2", "fxp4.4") if takes(parse(fmt), None)), BLOCK)
    return build(name, fmt, pipeline=pipeline, **({"pieces": 2} if name == "pwl" else {}))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CATALOGUE)
def test_emitted_verilog_has_results_of_golden(name: str) -> None:
    unit = row_unit(name, 2)
    made = Design(unit.name, emit(unit), DriverPorts.of_unit(unit))
    with CompiledModel(made) as loop:
        for codes in vectors(unit, 12, 1 << 12):
            size = max(map(len, codes.values()))
            found = loop.run(codes, size)
            for port, expected in reference(unit, codes).items():
                np.testing.assert_array_equal(found[port], expected, port)


def prove_equal(before: str, after: str, top: str, folder: Path) -> None:
    """Prove that two texts of a module have one logic, by induction over their registers."""
    design = libyosys.Design()

    def run(command: str) -> None:
        libyosys.run_pass(command, design)

    for name, text in (("gold", before), ("gate", after)):
        path = folder / f"{name}.v"
        path.write_text(text)
        for command in (f"read_verilog {path}", f"hierarchy -top {top}", "proc", "flatten", "memory", "opt_clean"):
            run(command)
        run(f"rename {top} {name}")
        run(f"cd {name}")
        # Inner operators and further signals of a name have other numbers; those of registers are equal.
        run("rename -hide w:*_part* w:*_? w:*_?? %% x:* %d t:$*dff* %co1:+[Q] %d")
        run("cd")
        run(f"design -stash {name}")
    for name in ("gold", "gate"):
        run(f"design -copy-from {name} -as {name} {name}")
    for command in ("equiv_make gold gate equal", "hierarchy -top equal", "equiv_struct", "equiv_simple"):
        run(command)
    run("equiv_induct")
    run("equiv_status -assert equal")


@pytest.mark.parametrize(
    "made",
    [
        partial(component, "mul bf16*bf16", Build(pipeline=1)),
        partial(component, "add e4m3fn+e4m3fn"),
        pytest.param(partial(component, "mac e5m2*e5m2+e6m5"), marks=pytest.mark.slow),
        Design2,
        DotProduct,
        partial(Streamed, component("mul e3m2*e3m2", Build(pipeline=2))),
    ],
    ids=["mul", "add", "mac", "design", "dot_product", "stream"],
)
def test_emitted_verilog_is_equal_to_netlist(made: Any, tmp_path: Path) -> None:
    design = made()
    prove_equal(emit(design, netlist=True), emit(design), design.name, tmp_path)


def test_equivalence_proof_rejects_other_logic(tmp_path: Path) -> None:
    unit = component("mul e3m2*e3m2", Build(pipeline=1))
    text = emit(unit)
    changed = text.replace("a_sign ^ b_sign", "a_sign | b_sign")
    assert changed != text
    with pytest.raises(Exception, match="nproven"):
        prove_equal(text, changed, unit.name, tmp_path)


def test_emitted_mul_is_readable() -> None:
    text = emit(component("mul bf16*bf16", Build(pipeline=1)))
    assert text.count("\n") <= 180
    assert "unused" not in text
    assert "$auto" not in text
    assert not re.search(r"\\\S*\$", text)
    for line in (
        "wire [7:0] a_exponent = a[14:7];",
        "wire a_nan = a_exponent_ones & a_mantissa_nonzero;",
        "wire product_sign = a_sign ^ b_sign;",
        "product_sign_stage1 <= product_sign;",
    ):
        assert f"  {line}\n" in text
    assert text.count("always @(posedge clk)") == 1


@pytest.mark.parametrize(
    ("text", "build", "most"), [("mac e5m2*e5m2+e6m5", Build(), 280), ("fma fp16*fp16+fp16", Build(pipeline=2), 340)]
)
def test_emitted_units_have_few_lines(text: str, build: Build, most: int) -> None:
    unit = component(text, build)
    few, many = emit(unit), emit(unit, netlist=True)
    assert few.count("\n") <= most < many.count("\n") / 2.5
    assert "unused" not in few


def test_inner_modules_keep_ports_of_their_components() -> None:
    text = emit(Design2())
    assert not re.search(r"\$\d", text)
    heads = dict(re.findall(r"^module \\?(\S+?) ?\((.*)\);", text, re.M))
    assert heads["design.add"] == "clk, rst, a, b, o, en"
    assert "o__payload" in heads["design.sums"].split(", ")
    assert ".b({k, i__payload[7:0], k})" in text
    assert "module \\dot_product.mac (clk, rst, a, b, " in emit(DotProduct())


def test_emitted_designs_pass_lint(tmp_path: Path) -> None:
    for made in (Design2(), DotProduct()):
        path = tmp_path / f"{made.name}.v"
        path.write_text(emit(made))
        lint(path, made.name)


def test_verilog_without_initial_values_resets_registers(tmp_path: Path) -> None:
    unit = component("mac e5m2*e5m2+e6m5", Build(pipeline=1))
    with_values, without = emit(unit), emit(unit, initial=False)
    assert re.search(r"^  reg .* = ", with_values, re.M)
    assert not re.search(r"^  reg .* = |^ *initial ", without, re.M)
    assert "--no-initial" in without
    assert port_list(with_values) == port_list(without)
    path = tmp_path / "unit.v"
    path.write_text(without)
    lint(path, unit.name)
    made = Design(unit.name, without, DriverPorts.of_unit(unit))
    with CompiledModel(made) as loop:
        for codes in vectors(unit, 12, 1 << 10):
            found = loop.run(codes, max(map(len, codes.values())))
            np.testing.assert_array_equal(found["o"], reference(unit, codes)["o"])


def test_verilog_without_initial_values_of_array_has_seeds_as_reset_values() -> None:
    text = emit(Chain(mac="e3m2*e3m2+e4m3", n=1, m=1, depth=8, rows=2))
    assert re.search(r"^ +initial ", text, re.M)
    unit = component("mac e5m2*e5m2+e6m5.sr10@lfsr16")
    assert "random0_lfsr <= 16'h0001;" in emit(unit, initial=False)


def test_initial_values_of_packages_can_be_omitted() -> None:
    texts = files([component("mul e3m2*e3m2", Build(pipeline=1))], "mul", initial=False)
    netlist = next(text for path, text in texts.items() if path.endswith("mul.v"))
    assert not re.search(r"^  reg .* = ", netlist, re.M)


def test_emit_refuses_unknown_values_after_reset() -> None:
    with pytest.raises(ValueError, match="Memory has registers without a reset, such as held"):
        emit(Memory(), initial=False)
    with pytest.raises(ValueError, match="has no registers"):
        emit(component("mul e3m2*e3m2"), initial=False)
    with pytest.raises(ValueError, match="no unit of the package has registers"):
        files([component("mul e3m2*e3m2")], "mul", initial=False)
    assert "unknown" not in emit(component("mul e3m2*e3m2", Build(pipeline=1, reset_less=True)), initial=False)
    assert "reg [7:0] count;" in emit(Counter(), initial=False)


SIZES = {"a": 4, "b": 4, "c": 5, "t": 1}


@pytest.mark.parametrize(
    ("value", "uses", "inlined"),
    [
        # A wider context would keep a carry that the signal drops, and invert bits that it does not have.
        ("a + b", "{1'h0, $1} + c", "{1'h0, a + b} + c"),
        ("a + b", "$1 + c", None),
        ("~ a", "$1 & c", None),
        ("a & b", "$1 | c", "(a & b) | c"),
        ("a < b", "$1 & c", None),
        ("$signed(a) - $signed(b)", "$1 == c", None),
        ("a - b", "$1 == b", "(a - b) == b"),
        ("a - b", "& $1 ", "&(a - b)"),
    ],
)
def test_values_are_written_only_where_their_width_stays(value: str, uses: str, inlined: str | None) -> None:
    text = f"""\
module top(a, b, c, o);
  wire [3:0] \\$1 ;
  input [3:0] a;
  input [3:0] b;
  input [4:0] c;
  output [4:0] o;
  assign \\$1  = {value};
  assign o = {uses.replace("$1", chr(92) + "$1 ")};
endmodule"""
    module = parse_module(text)
    inline_temporaries(module)
    assert (f"assign o = {inlined};" in text_of_module(module)) == (inlined is not None)
    if inlined is None:
        assert "\\$1 " in text_of_module(module).partition("assign o")[2]


def test_statements_of_other_forms_are_kept() -> None:
    """A statement that is not read as an expression keeps its text and the signals in it."""
    text = """\
module top(clk, a, o);
  wire [3:0] \\$1 ;
  input clk;
  wire clk;
  input [3:0] a;
  wire [3:0] a;
  output [3:0] o;
  wire [3:0] o;
  reg [3:0] words [15:0];
  always @(posedge clk) begin
    if (a[0])
      words[a] <= \\$1 ;
  end
  assign \\$1  = a ^ 4'h5;
  assign o = words[a];
endmodule"""
    found = readable(text, {})
    assert "  wire [3:0] words_part = a ^ 4'h5;\n" in found
    assert "      words[a] <= words_part;\n" in found
    assert "  assign o = words[a];\n" in found


def test_expressions_reject_other_texts() -> None:
    for text in ("a[b]", "a +", "f(a)", "a ? b"):
        with pytest.raises(expressions.Unreadable):
            expressions.read(text, SIZES)
