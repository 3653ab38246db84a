"""Area: a fixed-point multiplier needs no more lookup tables than handwritten Verilog."""

import pytest

from halfulp.fpga.synth.measure import Module, measure_modules
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fmt", "rounding", "by_hand"),
    [
        ("fxp4.4", "rn", SIGNED.format(up=NEAREST, o=SATURATE)),
        ("fxp4.4-wrap", "rz", SIGNED.format(up=TOWARD_ZERO, o=WRAP)),
        ("ufxp0.8", "rn", UNSIGNED),
    ],
)
def test_fixed_mul_uses_no_more_luts_than_handwritten(fmt, rounding, by_hand):
    unit = Mul(a=fmt, b=fmt, o=fmt, rounding=rounding)
    ours, theirs = measure_modules([Module(emit(unit, netlist=True), unit.name), Module(by_hand, "by_hand")], "vu9p")
    assert 0 < ours.lut <= theirs.lut


@pytest.mark.parametrize(("target", "kind", "word"), [("vu0", ValueError, "vu9p"), (3, TypeError, "int")])
def test_measure_rejects_unknown_targets(target, kind, word):
    with pytest.raises(kind, match=word):
        measure_modules([], target)
