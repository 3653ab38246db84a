"""Command `halfulp emit`: modules, their names, and options of wrappers."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.program import Program


def test_emit_command_accepts_names_and_reset(halfulp: Program) -> None:
    options = ("mac", "e5m2", "--pipeline", "1", "--reset-less", "--prefix", "my_", "--reset", "async-low")
    code, text, _ = halfulp("emit", *options)
    assert code == 0
    again = shlex.split(text.splitlines()[1].partition(": ")[2])
    assert again[:3] == ["halfulp", "emit", "mac e5m2*e5m2+e6m5.rn"]
    assert halfulp(*again[1:])[1] == text
    assert "module my_mac_e5m2_e5m2_e6m5_rn_p1_reset_less_async_low(clk, rst_n, en, " in text
    for words in (["--name", "1 bad"], ["--reset", "never"]):
        assert halfulp("emit", "mul", "e5m2", *words)[0] == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [
        "--tlast --tuser 8 --registered",
        "--pipeline 1 --separate --reset async --ports clk=clock",
        "--tlast --name sums --no-initial",
    ],
)
def test_header_of_a_stream_has_its_command_line(halfulp: Program, options: str) -> None:
    text = halfulp("emit", "mac e2m1fn*e2m1fn+e3m1.rn", "--stream", *shlex.split(options))[1]
    again = shlex.split(text.splitlines()[1].partition(": ")[2])
    assert again[:3] == ["halfulp", "emit", "mac e2m1fn*e2m1fn+e3m1.rn"]
    assert {*again[3:]} == {"--stream", *shlex.split(options)}
    assert halfulp(*again[1:])[1] == text


_MODULES = {
    "acc": ["mac e2m1fn --acc e3m1", "mac e2m1fn --acc exact"],
    "multiplier": ["requantize fxp2.2 --multiplier fxp1.3", "requantize fxp2.2 --multiplier fxp1.4"],
    "shift": ["requantize fxp2.2 --shift uint2", "requantize fxp2.2 --shift uint3"],
    "t": ["lerp e2m1fn --t e3m1", "lerp e2m1fn --t e2m2"],
    "product": ["mac e2m1fn --product e2m1fn.rz", "mac e2m1fn --product e2m1fn.ru"],
    "rounding": ["mul e2m1fn --round rz", "mul e2m1fn --round ru", "mul e2m1fn --round sr3", "mul e2m1fn --round port"],
    "lanes": ["sru ufxp1.3 --to ufxp1.1 --lanes 2"],
    "sharing": [f"sru ufxp1.3 --to ufxp1.1 --lanes 2 --random lfsr4 --sharing {kind}" for kind in ("own", "rotated")],
    "increment": ["sru fxp2.3 --to int2-wrap", "sru fxp2.3 --to int2-wrap --no-increment"],
    "stochastic": ["add e2m3fn --round sr3", "add e2m3fn --round sr3 --stochastic eager"],
    "goal": ["add e2m3fn", "add e2m3fn --goal speed", "mac e2m1fn --acc e3m1 --goal loop"],
    "dsp": ["mul e2m3fn", "mul e2m3fn --dsp"],
    "random": ["mul e2m1fn --round sr4 --random lfsr4", "mul e2m1fn --round sr4 --random plateau4"],
    "random_seed": ["mul e2m1fn --round sr3 --random lfsr4 --random-seed 2"],
    "saturate": ["mul e2m1", "mul e2m1 --saturate"],
    "flags": ["mul e2m1 --flags", "mul e2m1 --flags-before"],
    "pipeline": ["mul e2m1fn", "mul e2m1fn --pipeline 1", "mul e2m1fn --pipeline 2"],
    "iterations": ["div e2m1fn", "div e2m1fn --iterations 1", "div e2m1fn --iterations 2"],
    "reset_less": ["mul e2m1fn --pipeline 1 --reset-less"],
    "b": ["mul e2m1fn --b e3m0"],
    "c": ["fma e2m1fn", "fma e2m1fn --c e3m2fn"],
    "to": ["mul e2m1fn --to e3m2fn"],
    "k": ["dot e2m1fn --k 2", "dot e2m1fn --k 3"],
    "order": ["dot e2m1fn --k 2 --order sequential", "dot e2m1fn --k 2 --order aligned6.trunc"],
    "sparsity": ["sparsedot e2m1fn --k 4", "sparsedot e2m1fn --k 4 --sparsity 1:4"],
    "fn": ["pwl fxp2.2", "pwl fxp2.2 --fn exp"],
    "pieces": ["pwl fxp2.2 --pieces 2", "pwl fxp2.2 --pieces 3"],
    "error": ["pwl fxp2.2 --error 2"],
    "measure": ["pwl e3m2 --fn exp --pieces 1", "pwl e3m2 --fn exp --pieces 1 --measure absolute"],
    "breakpoints": ["pwl fxp2.2 --pieces 2 --breakpoints uniform"],
    "slopes": ["pwl fxp2.2 --pieces 2 --slopes pow2"],
    "terms": ["pwl fxp2.2 --pieces 2 --slopes pow2 --terms 1"],
    "structure": ["pwl fxp2.2 --pieces 2 --structure table"],
    "carry": ["mac e2m1fn --acc exact --carry 2"],
    "interleave": ["mac e2m1fn --acc e3m1 --interleave 2"],
    "reset": [f"mac e2m1fn --acc e3m1 --reset {style}" for style in ("async", "sync-low", "async-low")],
    "no_initial": ["mac e2m1fn --acc e3m1 --no-initial"],
    "enable": ["mac e2m1fn --acc e3m1 --enable low"],
    "ports": [
        *("mac e2m1fn --acc e3m1 --ports clk=aclk", "mac e2m1fn --acc e3m1 --ports rst=aclk"),
        *("mac e2m1fn --acc e3m1 --ports clk=x_rst_y", "mac e2m1fn --acc e3m1 --ports clk=x,rst=y"),
    ],
    "stream": [
        "mul e2m1fn --stream",
        "mul e2m1fn --pipeline 1 --stream",
        "mac e2m1fn --acc e3m1 --stream --reset async",
    ],
    "tlast": [
        "mul e2m1fn --stream --tlast",
        "mac e2m1fn --acc e3m1 --stream",
        "mac e2m1fn --acc e3m1 --stream --tlast",
    ],
    "tuser": ["mul e2m1fn --stream --tuser 1", "mul e2m1fn --stream --tuser 2"],
    "tkeep": ["mul e2m1fn --stream --tkeep", "mul e2m1fn --stream --tkeep --tlast"],
    "registered": ["mul e2m1fn --stream --registered"],
    "separate": ["mul e2m1fn --stream --separate", "mul e2m1fn --stream --separate --registered"],
    "valid": ["mul e2m1fn --pipeline 1 --valid", "mul e2m1fn --pipeline 1 --valid --tag 4"],
    "tag": ["mul e2m1fn --pipeline 1 --tag 4", "mul e2m1fn --pipeline 1 --tag 5", "mul e2m1fn --pipeline 2 --tag 4"],
    "target": ["mul e2m1fn --clock 200 --target xc7", "mul e2m1fn --clock 200 --target ecp5"],
    "clock": ["mul e2m1fn --clock 100 --target ecp5", "mul e2m1fn --clock 100.5 --target ecp5"],
}
"""Command lines of `halfulp emit` whose modules differ by an option, by the name of the option."""

_SAME_MODULE = {"unit", "fmt", "more", "package", "name", "prefix", "output", "flow", "json"}
"""Arguments that choose the unit, and options of the files and of the name itself."""


def bodies(halfulp: Program, lines: Iterable[str]) -> dict[str, set[str]]:
    """Return the Verilog without comments of emitted modules, by name."""
    found: dict[str, set[str]] = {}
    for line in lines:
        code, text, err = halfulp("emit", *shlex.split(line))
        assert code == 0, err
        name = re.search(r"^module \\?(\S+?)[ (]", text, re.M)
        assert name is not None
        body = "".join(part for part in text.splitlines(True) if not part.startswith("//"))
        found.setdefault(name[1], set()).add(body)
    return found


def test_list_of_modules_has_every_option_of_emit() -> None:
    from halfulp.fpga.vendor.cli import emit

    assert {option.name for option in emit.params} == {*_MODULES, *_SAME_MODULE}


@pytest.mark.slow
def test_controls_are_in_the_names_of_modules(halfulp: Program) -> None:
    lines = [line for option in ("reset", "enable", "ports") for line in _MODULES[option]]
    found = bodies(halfulp, [*lines, "mac e2m1fn --acc e3m1"])
    assert len(found) == len(lines) + 1
    assert "mac_e2m1fn_e2m1fn_e3m1_rn_async_low" in found
    # The order of ports, and names that are the default ones, change no module.
    assert len(bodies(halfulp, ["mac e2m1fn --ports clk=x,rst=y", "mac e2m1fn --ports rst=y,clk=x"])) == 1
    assert "mul_e2m1fn_e2m1fn_e2m1fn_rn_p1" in bodies(halfulp, ["mul e2m1fn --pipeline 1 --ports clk=clk"])


@pytest.mark.slow
def test_different_modules_have_different_names(halfulp: Program) -> None:
    found = bodies(halfulp, [line for lines in _MODULES.values() for line in lines])
    assert {name: len(texts) for name, texts in found.items() if len(texts) > 1} == {}
    assert len(found) > 60


@pytest.mark.slow
def test_emit_writes_to_file_and_stdout(halfulp: Program, tmp_path: Path) -> None:
    path = tmp_path / "mul.v"
    path.write_text("old")
    code, out, err = halfulp("emit", "mul", "e2m1fn", "-o", str(path))
    assert (code, out, err) == (0, "", "")
    assert "module mul_e2m1fn_e2m1fn_e2m1fn_rn(" in path.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["mul.v"]
    assert halfulp("emit", "mul", "e2m1fn")[1] == path.read_text()
    code, out, err = halfulp("emit", "dot", "posit8", "--k", "3", "--order", "sequential", "--pipeline", "2")
    assert (code, err) == (0, "")
    assert "module dot3_posit8_posit8_posit8_rn_order_sequential_p2(" in out
    assert all(f"input [7:0] {name};" in out for name in ("a0", "a1", "a2", "b0", "b1", "b2"))


def test_emit_announces_slow_exact_sum(halfulp: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfulp.units.verilog.emit", lambda *_, **how: "module\n")
    code, out, err = halfulp("emit", "dot", "fp64", "--k", "16")
    assert (code, out) == (0, "module\n")
    assert err.count("\n") == 1
    assert "4,202 bits" in err
    for quick in (("dot", "fp32", "--k", "16"), ("dot", "fp64", "--order", "sequential"), ("mac", "fp64")):
        assert halfulp("emit", *quick) == (0, "module\n", "")


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ("--tag 3", "register stages"),
        ("--stream --tag 3", "--tuser"),
        ("--tlast", "add --stream or --package"),
        ("--stream --reset async-low --pipeline 1", "sync or async"),
        ("--stream --enable low --pipeline 1", "no clock enable"),
        ("--stream --package -o nowhere", "omit --stream"),
        ("--valid --package -o nowhere", "not for --package"),
        ("--stream --flow vivado -o nowhere", "omit it with --flow"),
        ("--stream --tuser 0", "'--tuser'"),
    ],
)
def test_emit_refuses_options_of_wrappers_without_effect(halfulp: Program, words: str, word: str) -> None:
    code, out, err = halfulp("emit", "mul int4*int4", *words.split())
    assert (code, out) == (2, "")
    assert word in err
    assert err.count("\n") == 1
