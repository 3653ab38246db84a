"""The Verilog around a unit under test: the plain unit and its stream wrapper side by side, on packed words.

Packed words keep the traffic between Python and simulator at one write and one read a cycle, whatever the unit. The
fields are split into named wires of the port's width, so that a waveform shows them by name.
"""

from collections.abc import Mapping
from typing import Any

from .ports import Ports

TOP = "harness"


def harness(
    inputs: Ports, outputs: Ports, plain: tuple[str, Mapping[str, int]], stream: tuple[str, Mapping[str, int]]
) -> str:
    """Verilog of the module ``harness``.

    Parameters
    ----------
    inputs, outputs : Ports
        Of the unit.
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
    lines += _instance(
        "stream",
        stream,
        {
            "i__payload": "stream_inputs",
            "i__valid": "stream_i_valid",
            "i__ready": "stream_i_ready",
            "o__payload": "stream_outputs",
            "o__valid": "stream_o_valid",
            "o__ready": "stream_o_ready",
        },
    )
    return "\n".join([*lines, "endmodule", ""])


def _instance(name: str, module: tuple[str, Mapping[str, int]], pins: Mapping[str, str]) -> list[str]:
    kind, ports = module
    pins = dict(pins) | {"clk": "clk", "rst": "rst"}
    joined = ", ".join(f".{port}({pins[port]})" for port in ports if port in pins)
    return [f"  {kind} {name} ({joined});"]


def loop_ports(inputs: Ports, outputs: Ports, ports: Mapping[str, int]) -> str:
    """The text of ``ports.inc`` for ``loop.cpp``.

    Parameters
    ----------
    ports
        Ports of the module and their widths.
    """
    rest = [
        f"    top.{name} = {value};"
        for name, value in (("en", 1), ("valid", 1), ("rst", 0), ("clk", 0))
        if name in ports
    ]
    return "\n".join(
        [
            f"#define CLOCKED {int('clk' in ports)}",
            "inline void idle(Vtop& top) {",
            *rest,
            "}",
            "inline void drive(Vtop& top, const Lane* in, std::uint64_t i) {",
            *(f"    top.{port.name} = in[{n}].at(i);" for n, port in enumerate(inputs)),
            "}",
            "inline void sample(Vtop& top, std::uint64_t* const* out, std::uint64_t i) {",
            *(f"    out[{n}][i] = top.{port.name};" for n, port in enumerate(outputs)),
            "}",
            "",
        ]
    )


def streams_of(signature: Any) -> tuple[list[str], list[str]]:
    """Names of the streams into and out of a component, all of whose ports are streams.

    Parameters
    ----------
    signature : amaranth.lib.wiring.Signature
    """
    members = signature.members.items()
    return [name for name, member in members if member.flow.name == "In"], [
        name for name, member in members if member.flow.name == "Out"
    ]


def stream_ports(signature: Any, ports: Mapping[str, int]) -> str:
    """The text of ``ports.inc`` for ``streams.cpp``.

    Parameters
    ----------
    signature : amaranth.lib.wiring.Signature
        Of a component, all of whose ports are streams.
    ports
        Ports of the module and their widths.
    """
    # Two underscores are one, and one in hexadecimal, in C++.
    port = "top.{}___05F{}".format
    inputs, outputs = streams_of(signature)
    widths = [ports[f"{name}__payload"] for name in (*inputs, *outputs)]
    put, get = [], []
    for index, name in enumerate(inputs):
        payload, width = port(name, "payload"), ports[f"{name}__payload"]
        put.append(f"    case {index}: {port(name, 'valid')} = valid;")
        put += [f"        {line}" for line in _assigned(payload, width)] + ["        break;"]
    for index, name in enumerate(outputs):
        payload, width = port(name, "payload"), ports[f"{name}__payload"]
        get.append(f"    case {index}:")
        get += [f"        word[{part}] = {_word(payload, width, part)};" for part in range(-(-width // 32))]
        get.append("        break;")
    return "\n".join(
        [
            f"constexpr unsigned INPUTS = {len(inputs)}, OUTPUTS = {len(outputs)};",
            f"constexpr unsigned WIDTHS[] = {{{', '.join(map(str, widths))}}};",
            "inline void put(Vtop& top, unsigned stream, bool valid, const std::uint32_t* word) {",
            "    switch (stream) {",
            *put,
            "    }",
            "}",
            *_chosen("bool taken(Vtop& top, unsigned stream)", [f"return {port(name, 'ready')};" for name in inputs]),
            *_chosen(
                "void take(Vtop& top, unsigned stream, bool ready)",
                [f"{port(name, 'ready')} = ready; return;" for name in outputs],
            ),
            *_chosen(
                "bool offered(Vtop& top, unsigned stream)", [f"return {port(name, 'valid')};" for name in outputs]
            ),
            "inline void get(Vtop& top, unsigned stream, std::uint32_t* word) {",
            "    switch (stream) {",
            *get,
            "    }",
            "}",
            "",
        ]
    )


def axi_ports(names: Any, ports: Mapping[str, int]) -> str:
    """The text of ``ports.inc`` for ``axi.cpp``.

    Parameters
    ----------
    names : axi.Ports
        Of the core.
    ports
        Ports of the module and their widths.
    """
    request = ("valid", "ready", "addr", "len", "size", "burst")
    read = (*(f"ar{name}" for name in request), *(f"r{name}" for name in ("valid", "ready", "data", "resp", "last")))
    write = (
        *(f"aw{name}" for name in request),
        *(f"w{name}" for name in ("valid", "ready", "data", "strb", "last")),
        *(f"b{name}" for name in ("valid", "ready", "resp")),
    )
    host = (
        *("awvalid", "awready", "awaddr", "wvalid", "wready", "wdata", "wstrb", "bvalid", "bready"),
        *("arvalid", "arready", "araddr", "rvalid", "rready", "rdata"),
    )

    def signals(prefix: str, wanted: tuple[str, ...]) -> str:
        # Verilator has what is wider than 64 bits as an array of words.
        found = ((f"top.{prefix}_{name}", ports[f"{prefix}_{name}"]) for name in wanted)
        return f"{{{', '.join(f'{name}.data()' if width > 64 else f'&{name}' for name, width in found)}}}"

    return "\n".join(
        [
            f"constexpr unsigned READS = {len(names.reads)}, WRITES = {len(names.writes)};",
            f"constexpr unsigned BEAT = {ports[f'{names.writes[0]}_wdata'] // 8};",
            f"inline void set_clock(Vtop& top, bool level) {{ top.{names.clock} = level; }}",
            f"inline void set_reset(Vtop& top, bool on) {{ top.{names.reset} = !on; }}",
            # A word of a C++ dialect, to Verilator, which gives such signals another name.
            f"inline bool interrupt(Vtop& top) {{ return top.__SYM__{names.interrupt}; }}",
            *_chosen(
                "ReadPort read_port(Vtop& top, unsigned port)",
                [f"return {signals(prefix, read)};" for prefix in names.reads],
                of="port",
            ),
            *_chosen(
                "WritePort write_port(Vtop& top, unsigned port)",
                [f"return {signals(prefix, write)};" for prefix in names.writes],
                of="port",
            ),
            f"inline HostPort host_port(Vtop& top) {{ return {signals(names.host, host)}; }}",
            "",
        ]
    )


def _chosen(head: str, choices: list[str], of: str = "stream") -> list[str]:
    cases = [f"    case {index}: {choice}" for index, choice in enumerate(choices)]
    return [f"inline {head} {{", f"    switch ({of}) {{", *cases, "    }", "    __builtin_unreachable();", "}"]


def _assigned(payload: str, width: int) -> list[str]:
    if width > 64:
        return [f"for (unsigned i = 0; i < {-(-width // 32)}; ++i) {payload}[i] = word[i];"]
    return [f"{payload} = word[0]" + (" | std::uint64_t(word[1]) << 32;" if width > 32 else ";")]


def _word(payload: str, width: int, part: int) -> str:
    return f"{payload}[{part}]" if width > 64 else f"std::uint64_t({payload}) >> {32 * part}"
