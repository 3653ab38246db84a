"""Verilog harness of a unit under test: the unit and its stream wrapper, with packed words as ports.

Packed words need one write and one read per cycle between Python and simulator, for every unit. They are split into
named wires, so that a waveform shows each port by name.
"""

from collections.abc import Mapping

from .ports import Ports

TOP = "harness"


def harness(
    inputs: Ports, outputs: Ports, plain: tuple[str, Mapping[str, int]], stream: tuple[str, Mapping[str, int]]
) -> str:
    """Generate the Verilog of the module ``harness``.

    Parameters
    ----------
    inputs, outputs : Ports
        Ports of the unit.
    plain, stream : (module name, its ports and their widths)
    """
    lines = [
        f"module {TOP} (",
        "  input clk, input rst,",
        "  input plain_en, input plain_valid,",
        f"  input [{inputs.width - 1}:0] plain_inputs, output [{outputs.width - 1}:0] plain_outputs,",
        f"  input [{inputs.width - 1}:0] stream_inputs, input stream_i_valid, output stream_i_ready,",
        f"  output [{outputs.width - 1}:0] stream_outputs, output stream_o_valid, input stream_o_ready",
        ");",
    ]
    for side in ("plain", "stream"):
        for port, low in inputs.slices():
            lines.append(
                f"  wire [{port.width - 1}:0] {side}_{port.name} = {side}_inputs[{low + port.width - 1}:{low}];"
            )
    for port, low in outputs.slices():
        lines.append(f"  wire [{port.width - 1}:0] plain_{port.name};")
        lines.append(f"  assign plain_outputs[{low + port.width - 1}:{low}] = plain_{port.name};")
        lines.append(f"  wire [{port.width - 1}:0] stream_{port.name} = stream_outputs[{low + port.width - 1}:{low}];")
    pins = {port.name: f"plain_{port.name}" for port in (*inputs, *outputs)}
    lines += _instance("plain", plain, pins | {"en": "plain_en", "valid": "plain_valid"})
    pins = {f"{side}__{part}": f"stream_{side}_{part}" for side in "io" for part in ("valid", "ready")}
    lines += _instance("stream", stream, pins | {"i__payload": "stream_inputs", "o__payload": "stream_outputs"})
    return "\n".join([*lines, "endmodule", ""])


def _instance(name: str, module: tuple[str, Mapping[str, int]], pins: Mapping[str, str]) -> list[str]:
    kind, ports = module
    pins = dict(pins) | {"clk": "clk", "rst": "rst"}
    joined = ", ".join(f".{port}({pins[port]})" for port in ports if port in pins)
    return [f"  {kind} {name} ({joined});"]
