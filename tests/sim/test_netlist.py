"""Digest of a netlist: it depends on the logic between ports and registers, and on no name or way of writing it."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from halfulp.implementation import Implementation
from halfulp.sim.build import verilog
from halfulp.sim.formal.prove import circuit
from halfulp.sim.netlist import netlist as digest_of

PLAIN = """
module top (clk, rst, a, b, s, o);
  input clk, rst, s;
  input [3:0] a, b;
  output [4:0] o;
  wire [4:0] sum;
  wire carry;
  reg [4:0] held = 5'd3;
  reg last = 1'd0;
  assign sum = a + b;
  assign carry = sum[4];
  assign o = s ? held ^ {4'd0, last} : 5'd0;
  always @(posedge clk) begin
    if (rst) held <= 5'd3; else held <= sum;
    last <= carry & ~(a[0] & b[0]);
  end
endmodule
"""


READ = """
from halfulp.sim.formal.netlist import run
from pyosys.libyosys import Design
run(Design(), "read_verilog design.v", "write_rtlil design.il")
"""


def netlist(text):
    """Digest of the logic of Verilog, which Yosys reads in a process: an error would end this one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "design.v").write_text(text)
        subprocess.run([sys.executable, "-c", READ], cwd=folder, check=True, capture_output=True)
        return digest_of(Path(folder, "design.il").read_text())


@pytest.fixture(scope="module")
def plain():
    return netlist(PLAIN)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "changes",
    [
        {"sum": "total", "held": "z", "last": "a_first", "carry": "q", "top": "bottom"},
        {"  wire carry;\n": "", "  assign carry = sum[4];\n": "", "carry &": "sum[4] &"},
        {"sum = a + b": "sum = {1'd0, b} + {1'd0, a}"},
        {"  wire [4:0] sum": "  wire [7:0] sum", "held <= sum": "held <= sum[4:0]"},
        {"s ? held ^ {4'd0, last} : 5'd0": "{5{s}} & {held[4:1], last ^ held[0]}"},
        {"~(a[0] & b[0])": "(!a[0] || !b[0])"},
        {"  wire carry;\n": "  wire carry, more;\n  assign more = a[0] & s;\n  reg spare;\n"}
        | {"    last <=": "    spare <= more;\n    last <="},
        {"  reg [4:0] held = 5'd3;\n  reg last = 1'd0;\n": "  reg last = 1'd0;\n  reg [4:0] held = 5'd3;\n"},
        {"module top": "// Written by another version.\nmodule top"},
    ],
    ids=["names", "no temporary", "operands", "wide sum", "and gates", "de Morgan", "unused", "order", "comment"],
)
def test_netlist_is_the_same_however_it_is_written(changes, plain):
    text = PLAIN
    for old, new in changes.items():
        assert old in text
        text = re.sub(rf"\b{old}\b", new, text) if old.isalpha() else text.replace(old, new)
    assert netlist(text) == plain


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a + b", "a - b"),
        ("a + b", "a + b + 1"),
        ("sum[4]", "sum[3]"),
        ("~(a[0] & b[0])", "(a[0] & b[0])"),
        ("~(a[0] & b[0])", "~(a[1] & b[0])"),
        ("held ^", "sum ^"),
        ("= 5'd3;\n  reg", "= 5'd2;\n  reg"),
        ("= 5'd3;\n  reg", ";\n  reg"),
        ("if (rst) held <= 5'd3", "if (rst) held <= 5'd2"),
        ("  reg last = 1'd0", "  reg last = 1'd1"),
        ("held <= sum", "held <= {sum[0], sum[4:1]}"),
        (
            "(clk, rst, a, b, s, o);\n  input clk, rst, s;",
            "(clk, clear, a, b, s, o);\n  input clk, clear, s; wire rst = clear;",
        ),
    ],
)
def test_netlist_is_another_one_if_the_logic_changes(old, new, plain):
    assert old in PLAIN
    assert netlist(PLAIN.replace(old, new)) != plain


def test_netlist_tells_registers_apart_by_all_their_next_values():
    """Two shift registers whose outputs differ after four cycles alone, by an inverter at their input."""
    text = """
module top (clk, a, o);
  input clk, a;
  output o;
  reg [3:0] held = 4'd0;
  assign o = held[3];
  always @(posedge clk) held <= {held[2:0], a};
endmodule
"""
    assert netlist(text) != netlist(text.replace(", a}", ", ~a}"))
    assert netlist(text) != netlist(text.replace("[2:0], a", "[2:0], 1'd0"))
    assert netlist(text) != netlist(re.sub(r"4'd0|3|2:0", lambda found: {"2:0": "1:0"}.get(found[0], "2"), text))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "asked",
    [
        *("mul e5m2*e5m2.rn", "mac e2m1*e2m1+e3m2.sr4@lfsr16", "fma posit4*posit4+posit4.rn", "convert nf4>fxp2.2.rz"),
        *("quire fxp2.2*fxp2.2=fxp4.4.rn", "div e2m1/e2m1.rn", "pwl tanh(fxp4.4)>fxp1.7.rn pieces=4"),
    ],
)
def test_netlist_of_verilog_is_that_of_the_design(asked):
    """The Verilog of Yosys has the logic of the RTLIL, to which sign-off records belong."""
    one = Implementation.parse(asked, pipeline=2 * asked.startswith("fma")).buildable
    assert netlist(verilog(one.component(), netlist=True)) == digest_of(circuit(one.component()))


@pytest.mark.slow
def test_netlist_of_a_unit_has_no_names_of_its_own():
    text = verilog(Implementation.parse("mac e2m1*e2m1+e3m2.rn").component())
    head, body = text.split(");", 1)
    ports = set(re.findall(r"\w+", head[head.index("(") :]))
    inner = set(re.findall(r"^  (?:wire|reg) (?:\[\d+:0\] )?(\w+)", text, re.M)) - ports
    assert len(inner) > 20
    renamed = re.sub(
        r"\b\w+\b", lambda found: f"n{sorted(inner).index(found[0])}" if found[0] in inner else found[0], body
    )
    assert renamed != body
    assert netlist(f"{head});{renamed}") == netlist(text)
    operators = [place.start() + 1 for place in re.finditer(r" [&|^] ", body)]
    others = [
        f"{head});{body[:place]}{ {'&': '|', '|': '^', '^': '|'}[body[place]] }{body[place + 1 :]}"
        for place in operators[:: len(operators) // 6]
    ]
    # A few operators have operands for which the other one gives the same.
    assert sum(netlist(other) != netlist(text) for other in others) > len(others) // 2
