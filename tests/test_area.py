"""Fixed point leaves no floating-point machinery behind: a multiplier costs what one written by hand costs."""

import json
import re

import pytest
from pyosys import libyosys

from halfulp.units import Mul
from halfulp.units.verilog import emit

SIGNED = """
module by_hand(input signed [7:0] a, input signed [7:0] b, output [7:0] o);
  wire signed [15:0] product = a * b;
  wire up = {up};
  wire signed [12:0] rounded = $signed(product[15:4]) + $signed({{1'b0, up}});
  {o}
endmodule
"""

UNSIGNED = """
module by_hand(input [7:0] a, input [7:0] b, output [7:0] o);
  wire [15:0] product = a * b;
  wire up = product[7] & (|product[6:0] | product[8]);
  wire [8:0] rounded = product[15:8] + up;
  assign o = rounded[8] ? 8'hff : rounded[7:0];
endmodule
"""

NEAREST = "product[3] & (|product[2:0] | product[4])"
TOWARD_ZERO = "product[15] & |product[3:0]"
SATURATE = "assign o = &rounded[12:7] | ~|rounded[12:7] ? rounded[7:0] : {rounded[12], {7{~rounded[12]}}};"
WRAP = "assign o = rounded[7:0];"


def tables(verilog, top, folder):
    """Lookup tables of a module on UltraScale+, without DSP blocks."""
    source = folder / f"{top}.v"
    source.write_text(verilog)
    design = libyosys.Design()
    for command in (
        f"read_verilog {source}",
        f"synth_xilinx -family xcup -flatten -noiopad -noclkbuf -nodsp -top {top}",
        f"tee -q -o {folder}/count.json stat -json",
    ):
        libyosys.run_pass(f"tee -q -o {folder}/log {command}" if "tee" not in command else command, design)
    cells = json.loads((folder / "count.json").read_text())["design"]["num_cells_by_type"]
    return sum(count for cell, count in cells.items() if re.fullmatch("LUT[1-6]", cell))


@pytest.mark.parametrize(
    ("fmt", "rounding", "by_hand"),
    [
        ("fxp4.4", "rn", SIGNED.format(up=NEAREST, o=SATURATE)),
        ("fxp4.4-wrap", "rz", SIGNED.format(up=TOWARD_ZERO, o=WRAP)),
        ("ufxp0.8", "rn", UNSIGNED),
    ],
)
def test_a_fixed_point_multiplier_costs_no_more_than_one_by_hand(fmt, rounding, by_hand, tmp_path):
    unit = Mul(a=fmt, b=fmt, o=fmt, rounding=rounding)
    ours, theirs = tables(emit(unit), unit.name, tmp_path), tables(by_hand, "by_hand", tmp_path)
    assert 0 < ours <= theirs
