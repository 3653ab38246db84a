"""Emitted Verilog for readers: equal to the netlist of Yosys, with names of values and ports of components."""

import functools
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import verilog as amaranth_verilog
from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from halfulp.hdl.formats import Rounding, parse
from halfulp.hdl.specs import Build
from halfulp.units import Streamed
from halfulp.units.catalogue import CATALOGUE, component
from halfulp.units.readable import readable
from halfulp.units.systolic import Chain, Grid
from halfulp.units.verilog import emit
from tests.settings import ROOT
from tests.short_form import BLOCK, build
from tests.units.test_verilog import Counter, label

KINDS = (("e3m2", "rn", 0), ("e3m1", "sr2", 2), ("fxp2.3", "rd", 2), ("posit5", "rn", 1), ("takum4", "rn", 0))


def kinds() -> list[partial[Any]]:
    """Return a unit of each kind, in turn of each family that it takes, then all others."""
    rows = []
    for name, row in CATALOGUE.items():
        taken = [kind for kind in KINDS if row.spec.takes(parse(kind[0]), Rounding.parse(kind[1]))]
        if name.startswith("block") and not taken:
            taken = [(BLOCK, "rn", 1)]
        turn = len(rows) % max(len(taken), 1)
        rows.append(
            [partial(build, name, fmt, rounding=mode, pipeline=n) for fmt, mode, n in taken[turn:] + taken[:turn]]
        )
    # Units of other roundings are among `DESIGNS`.
    return [row[0] for row in rows if row] + [made for row in rows for made in row[1:]]


DESIGNS = [
    partial(component, "mac e5m2*e5m2+e6m5.sr10@lfsr16", Build(pipeline=2, reset_less=True)),
    partial(component, "div e3m2/e3m2", Build(iterations=1)),
    partial(component, "mul e3m2*e3m2.port flags"),
    partial(component, "pwl tanh(fxp4.4) pieces=4", Build(pipeline=1)),
    partial(component, "sru fxp4.4>fxp2.2.sr2@plateau2 lanes=2"),
    partial(Chain, mac="e3m2*e3m2+e4m3", n=2, m=1, depth=8, rows=2),
    partial(Grid, mac="e3m2*e3m2+e4m3.sr3@lfsr8", n=2, m=1),
]


LONGEST = 300
"""Seconds that a proof may take."""


def equal(first: str, second: str, top: str, folder: Path) -> bool:
    """Return True if Yosys proves that two texts have equal modules."""
    for name, text in (("first.v", first), ("second.v", second)):
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "tests.verilog_equivalence", folder / "first.v", folder / "second.v", top]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT, timeout=LONGEST)
    return done.returncode == 0 and "SAT proof finished - no model found: SUCCESS!" in done.stdout


@pytest.fixture
def one_netlist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Yosys once for each netlist."""
    convert = functools.cache(amaranth_verilog._convert_rtlil_text)
    monkeypatch.setattr(amaranth_verilog, "_convert_rtlil_text", convert)


@pytest.mark.usefixtures("one_netlist")
@pytest.mark.sampled(144, 15)
@pytest.mark.parametrize("made", [*kinds(), *DESIGNS], ids=label)
def test_emitted_verilog_is_proved_equal_to_the_netlist(made: Any, tmp_path: Path) -> None:
    design = made()
    netlist, text = emit(design, netlist=True), emit(design)
    assert text.count("\n") < netlist.count("\n")
    assert "unused_part" not in text
    assert "$" not in text.replace("$signed(", "")
    assert equal(netlist, text, design.name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"reset": style} for style in ("async", "sync-low", "async-low")]
    + [{"enable": "low"}, {"ports": {"clk": "aclk", "en": "ce"}}],
)
def test_options_of_ports_are_proved_equal_to_those_of_the_netlist(options: dict[str, Any], tmp_path: Path) -> None:
    for design in (
        component("mac e3m2*e3m2+e4m3.sr2@lfsr8", Build(pipeline=2)),
        Streamed(component("mul e3m2*e3m2", Build(pipeline=1))),
    ):
        if ("enable" not in options and "ports" not in options) or hasattr(design, "en"):
            netlist, text = (emit(design, "top", netlist=value, **options) for value in (True, False))
            assert equal(netlist, text, "top", tmp_path)


def test_verilog_is_short() -> None:
    assert emit(component("mul bf16*bf16", Build(pipeline=1))).count("\n") < 170


class Widths(wiring.Component):
    """Operators whose value depends on the width and the sign of their context."""

    a: In(4)
    b: In(4)
    s: In(1)
    o: Out(9)
    p: Out(9)
    q: Out(9)
    r: Out(9)
    t: Out(1)
    u: Out(9)
    v: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b, s = self.a, self.b, self.s
        m.d.comb += [
            self.o.eq((a + b)[:4] + ~(a ^ b)[:4]),
            self.p.eq(Mux(s, ~a, (a << 1)[:4]) | b),
            self.q.eq((a.as_signed() * b.as_signed())[:6] - (a - b)[:4].as_signed()),
            self.r.eq(Cat((a + b)[:4], ~s, (a - 1)[:3]) & Cat(~b, ~a)),
            self.t.eq(((a - b)[:4] < (b.as_signed() >> 1)) ^ (~s == (a & b).all())),
            self.v.eq((a.as_signed() >> b[:2]).as_unsigned() ^ b),
            self.u.eq((-a.as_signed() >> self.b[:2]) + (~s & ~a[0])),
        ]
        return m


def test_expressions_keep_widths_and_signs(tmp_path: Path) -> None:
    assert equal(emit(Widths(), netlist=True), emit(Widths()), "Widths", tmp_path)


def _parity(m: Module, c: Any) -> None:
    m.d.comb += c.o.eq(Cat((~c.a).xor(), (~(c.a & c.b)).any(), ~c.a.xor()))


def _parts(m: Module, c: Any) -> None:
    r = Signal(8, reset_less=True)
    with m.If(c.x):
        m.d.sync += r[0:4].eq(c.b)
    with m.If(c.y):
        m.d.sync += r[4:8].eq(c.a)
    m.d.comb += c.o.eq(r)


def _halves(m: Module, c: Any) -> None:
    r = Signal(8, reset_less=True)
    m.d.sync += r[4:8].eq(c.a)
    with m.If(c.x):
        m.d.sync += r[0:4].eq(c.b)
    m.d.comb += c.o.eq(r)


def _scattered(m: Module, c: Any) -> None:
    r = Signal(8)
    m.d.sync += r[4:8].eq(c.a)
    with m.If(c.x):
        m.d.sync += Cat(r[0:2], r[6:8]).eq(c.b)
    m.d.comb += c.o.eq(r)


def _overlapping(m: Module, c: Any) -> None:
    r = Signal(8)
    with m.If(c.x):
        m.d.sync += r[0:6].eq(c.a + c.b)
    with m.If(c.y):
        m.d.sync += r[2:8].eq(c.b)
    with m.If(c.x & c.y):
        m.d.sync += r[3:5].eq(c.a)
    m.d.comb += c.o.eq(r)


def _gated_clock(m: Module, c: Any) -> None:
    m.domains.gated = ClockDomain("gated", reset_less=True)
    m.domains.slow = ClockDomain("slow", reset_less=True)
    count = Signal(4)
    r = Signal(4, reset_less=True)
    q = Signal(4, reset_less=True)
    m.d.sync += count.eq(count + 1)
    m.d.comb += [ClockSignal("gated").eq(ClockSignal() & c.x), ClockSignal("slow").eq(count[3]), c.o.eq(Cat(r, q))]
    m.d.gated += r.eq(c.a)
    m.d.slow += q.eq(c.b)


def _any_label(m: Module, c: Any) -> None:
    with m.Switch(c.a):
        with m.Case("1--0"):
            m.d.comb += c.o.eq(c.b)
        with m.Case("----"):
            m.d.comb += c.o.eq(1)


def _unnamed_parts(m: Module, c: Any) -> None:
    first, second = Widths(), Widths()
    m.submodules += first, second
    odd = Signal(4, name="1st")
    m.d.comb += [first.a.eq(c.a), second.a.eq(c.b), odd.eq(c.a ^ second.v), c.o.eq(Cat(first.v, odd))]


DESIGNS_OF_USERS = (*(_parity, _parts, _halves, _scattered, _overlapping, _gated_clock, _any_label, _unnamed_parts),)
"""Functions that write the logic of a component with the operands a and b of 4 bits, x and y, and the result o."""


def _component(write: Any, name: str = "Top", **ports: Any) -> wiring.Component:
    class Top(wiring.Component):
        def __init__(self) -> None:
            shapes: dict[str, Any] = {"a": In(4), "b": In(4), "x": In(1), "y": In(1), "o": Out(8)}
            super().__init__(shapes | ports)

        def elaborate(self, platform: object) -> Module:
            m = Module()
            write(m, self)
            return m

    Top.__name__ = name
    return Top()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("reset", ["sync", "async"])
@pytest.mark.parametrize("write", DESIGNS_OF_USERS, ids=lambda one: one.__name__.strip("_"))
def test_designs_of_users_are_proved_equal_to_the_netlist(write: Any, reset: str, tmp_path: Path) -> None:
    options = {"reset": reset} if write in (_parts, _scattered, _overlapping) else {}
    netlist, text = (emit(_component(write), "Top", netlist=value, **options) for value in (True, False))
    assert equal(netlist, text, "Top", tmp_path)


def test_clocks_of_a_design_keep_their_drivers(tmp_path: Path) -> None:
    text = emit(_component(_gated_clock), "Top")
    for clock in re.findall(r"posedge (\w+)", text):
        assert re.search(rf"(input {clock};|wire {clock} = |assign {clock} = |reg (\[3:0\] )?{clock}\b)", text), clock


def test_texts_and_ports_of_instances_keep_their_names() -> None:
    def write(m: Module, c: Any) -> None:
        low_part = Signal(4)
        m.d.comb += low_part.eq(c.a + c.b)
        m.submodules.ext = Instance("ext", p_W=8, p_S="low_part", i_low_part=low_part, o_o=c.o)

    text = emit(_component(write), "Top")
    assert '.S("low_part")' in text
    assert ".low_part(" in text


def test_port_may_have_the_name_of_the_start_register(tmp_path: Path) -> None:
    def write(m: Module, c: Any) -> None:
        with m.Switch(c.a):
            for place in range(8):
                with m.Case(place):
                    m.d.comb += c.o.eq(c.at_start ^ place)

    netlist, text = (emit(_component(write, at_start=In(8)), "Top", netlist=value) for value in (True, False))
    assert equal(netlist, text, "Top", tmp_path)


def test_ports_change_their_names_at_once() -> None:
    unit = component("mul e3m2*e3m2", Build(pipeline=1))
    swapped = emit(unit, "top", ports={"clk": "rst", "rst": "clk"})
    assert "module top(rst, clk, " in swapped
    assert "always @(posedge rst)" in swapped
    assert "if (clk)" in swapped
    assert "module rst(clk, rst_n, " in emit(unit, "rst", reset="sync-low")


def test_initial_values_are_needed_without_a_constant_reset() -> None:
    def write(m: Module, c: Any) -> None:
        r = Signal(8, reset_less=True)
        with m.If(c.no_rst):
            m.d.sync += r.eq(r + 1)
        m.d.comb += c.o.eq(r)

    with pytest.raises(ValueError, match="no reset"):
        emit(_component(write, no_rst=In(1)), "Top", initial=False)


def test_wider_context_puts_an_expression_in_braces() -> None:
    text = "\n".join(
        [
            "module m(a, b, o, p);",
            *(f"  {kind} [{high}:0] {name};" for kind, high, name in (("input", 3, "a"), ("input", 3, "b"))),
            "  output [7:0] o;",
            "  output [3:0] p;",
            "  wire [3:0] \\$1 ;",
            "  wire [3:0] \\$2 ;",
            "  wire [3:0] \\$3 ;",
            "  assign \\$1  = ~ a;",
            "  assign \\$2  = a & b;",
            "  assign \\$3  = ~ b;",
            "  assign o = \\$1  + \\$2 ;",
            "  assign p = \\$3  ^ a;",
            "endmodule",
        ]
    )
    lines = readable(text, {}).splitlines()
    assert "  assign o = {~a} + (a & b);" in lines
    assert "  assign p = ~b ^ a;" in lines


class Inner(wiring.Component):
    """Component whose members are partly constant, partly copies of each other."""

    a: In(8)
    b: In(8)
    o: Out(9)
    p: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low = Signal(4)
        m.d.sync += low.eq(self.a[:4])
        m.d.comb += [self.o.eq(self.a + self.b), self.p.eq(Cat(low[:2], Const(1, 1), self.a[0]))]
        return m


class Outer(wiring.Component):
    """Component with two others, which are connected by parts of their ports."""

    x: In(4)
    y: In(8)
    o: Out(9)
    z: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.one = one = Inner()
        m.submodules.two = two = Inner()
        m.d.comb += [one.a.eq(Cat(self.x, Const(2, 2))), one.b.eq(self.y), two.a.eq(one.o[1:])]
        m.d.comb += [two.b.eq(Cat(one.p, self.y[2:4])), self.o.eq(two.o), self.z.eq(two.p)]
        return m


def test_inner_modules_have_the_ports_of_their_components(tmp_path: Path) -> None:
    text = emit(Outer())
    assert equal(emit(Outer(), netlist=True), text, "Outer", tmp_path)
    assert re.findall(r"^module \\\S+ \((.*)\);", text, re.M) == ["clk, rst, a, b, o, p"] * 2


class Clash(wiring.Component):
    """Component with a given signature."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal()
        m.d.sync += state.eq(~state)
        return m


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ({"clk": In(1)}, "Clash has a port clk and a clock or reset clk; choose another name"),
        ({"a__b": Out(1), "a": Out(wiring.Signature({"b": Out(1)}))}, "Clash has two ports a__b"),
    ],
)
def test_emit_rejects_ports_of_one_name(signature: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        emit(Clash(signature))


class Stored(wiring.Component):
    """Component with a memory."""

    o: Out(4)
    a: In(2)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=4, depth=4, init=[])
        port = memory.read_port(domain="comb")
        state = Signal()
        m.d.sync += state.eq(~state)
        m.d.comb += [port.addr.eq(self.a), self.o.eq(port.data ^ state)]
        return m


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{}, {"reset": "async-low"}])
def test_no_initial_omits_initial_values(options: dict[str, str]) -> None:
    design = component("mac e3m2*e3m2+e4m3.sr2@lfsr8", Build(pipeline=2))
    plain, without = emit(design, **options), emit(design, initial=False, **options)
    assert re.search(r"^  reg .* = ", plain, re.M)
    assert not re.search(r"^  (reg .* = |initial)|at_start", without, re.M)
    assert "--no-initial" in without.splitlines()[1]
    assert f"module {design.name}_{'async_low_' * bool(options)}no_initial(" in without


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: component("mac e3m2*e3m2+e4m3", Build(pipeline=2, reset_less=True)), "has no reset of"),
        (Stored, "has no reset of a memory: keep the initial values"),
        (lambda: component("mul e3m2*e3m2"), "has no registers: omit the option --no-initial"),
    ],
)
def test_no_initial_needs_registers_with_resets(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        emit(make(), initial=False)


def test_netlist_has_initial_values() -> None:
    with pytest.raises(ValueError, match="a netlist has initial values"):
        emit(Counter(), initial=False, netlist=True)
