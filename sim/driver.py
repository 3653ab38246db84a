"""Ports of a design for the driver of its compiled model, and the C++ that describes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfulp.units import Unit

CONSTANTS = {"en": 1, "valid": 1, "rst": 0}
"""Constant levels of a unit's control inputs."""

_REQUEST = ("valid", "ready", "addr", "len", "size", "burst")

READ = (*(f"ar{name}" for name in _REQUEST), *(f"r{name}" for name in ("valid", "ready", "data", "resp", "last")))
WRITE = (
    *(f"aw{name}" for name in _REQUEST),
    *(f"w{name}" for name in ("valid", "ready", "data", "strb", "last")),
    *(f"b{name}" for name in ("valid", "ready", "resp")),
)
HOST = (
    *("awvalid", "awready", "awaddr", "wvalid", "wready", "wdata", "wstrb", "bvalid", "bready"),
    *("arvalid", "arready", "araddr", "rvalid", "rready", "rdata"),
)
"""Signals of AXI ports, in the order of the structures in ``memory.h``."""


@dataclass(frozen=True)
class DriverPorts:
    """Names of a design's ports that the driver uses; absent ones are empty.

    Attributes
    ----------
    inputs, outputs : tuple of str
        Signals of up to 64 bits, driven and sampled in every cycle.
    held : tuple of str
        Control inputs with the constant levels of `CONSTANTS`.
    latency : int
        Clock cycles between inputs and outputs.
    initiation : int
        Clock cycles between inputs and the next ones.
    sources, sinks : tuple of str
        Streams into and out of the design: prefixes of ``__payload``, ``__valid`` and ``__ready``.
    reads, writes : tuple of str
        AXI4 ports with 512 data bits and 64 address bits: prefixes of ``_arvalid`` and so on.
    host : str
        AXI4-Lite port with 32 data bits and 9 to 16 address bits.
    interrupt : str
        Output that ends `CompiledModel.wait`.
    clock, reset : str
        Clock and synchronous reset.
    reset_on : int
        Active level of the reset.
    select : str
        Input that selects a mutant.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    latency: int = 0
    initiation: int = 1
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    host: str = ""
    interrupt: str = ""
    clock: str = "clk"
    reset: str = "rst"
    reset_on: int = 1
    select: str = ""

    @classmethod
    def of_unit(cls, unit: "Unit") -> "DriverPorts":
        """Return the ports of a unit, with constant controls; raise ValueError if its latency varies."""
        unit.check_one_latency("a test bench")
        return cls(tuple(unit.inputs), tuple(unit.outputs), tuple(CONSTANTS), unit.latency, unit.initiation)

    @classmethod
    def of_streams(cls, signature: Any, select: str = "") -> "DriverPorts":
        """Return the ports of a component that has only streams."""
        members = [(name, member.flow.name) for name, member in signature.members.items()]
        sources, sinks = (tuple(name for name, flow in members if flow == wanted) for wanted in ("In", "Out"))
        return cls(sources=sources, sinks=sinks, select=select)

    def text(self, widths: Mapping[str, int]) -> str:
        """Generate ``ports.inc``, which ``driver.cpp`` includes.

        Parameters
        ----------
        widths
            Widths of the module's ports.
        """
        signals = {"CLOCK": self.clock, "RESET": self.reset, "SELECT": self.select, "INTERRUPT": self.interrupt}
        defined = {name: _member(signal) for name, signal in signals.items() if signal in widths}
        counts = {"INPUTS": self.inputs, "OUTPUTS": self.outputs, "READS": self.reads, "WRITES": self.writes}
        defined |= {"RESET_ON": str(self.reset_on)} | {name: str(len(ports)) for name, ports in counts.items()}
        if self.writes:
            defined["BEAT"] = str(widths[f"{self.writes[0]}_wdata"] // 8)
        held = [name for name in self.held if name in widths]
        lines = [f"#define {name} {text}" for name, text in defined.items()]
        lines += _function("void idle(Vtop& top)", (f"top.{_member(name)} = {CONSTANTS[name]};" for name in held))
        lines += _function(
            "void drive(Vtop& top, const Lane* in, std::uint64_t i)",
            (f"top.{_member(name)} = in[{n}].at(i);" for n, name in enumerate(self.inputs)),
        )
        lines += _function(
            "void sample(Vtop& top, std::uint64_t* const* out, std::uint64_t i)",
            (f"out[{n}][i] = top.{_member(name)};" for n, name in enumerate(self.outputs)),
        )
        for function, names in (("sources", self.sources), ("sinks", self.sinks)):
            lines += _list(f"std::vector<Stream> {function}(Vtop& top)", [_stream(name, widths) for name in names])
        if self.reads or self.writes:
            for kind, ports, order in (("Read", self.reads, READ), ("Write", self.writes, WRITE)):
                rows = [f"{kind}Port{_signals(name, order, widths)}" for name in ports]
                lines += _list(f"std::vector<{kind}Port> {kind.lower()}_ports(Vtop& top)", rows)
            row = _signals(self.host, HOST, widths)
            lines += _function("HostPort host_port(Vtop& top)", [f"return {row};"])
        return "\n".join([*lines, ""])


NO_PORTS = DriverPorts()
"""Ports of a design that only cocotb drives."""


def _member(signal: str) -> str:
    """Return the name of a port in Verilator's C++, which escapes double underscores and some keywords."""
    return f"__SYM__{signal}" if signal == "interrupt" else signal.replace("__", "___05F")


def _function(head: str, body: Iterable[str]) -> list[str]:
    return [f"inline {head} {{", *(f"    {line}" for line in body), "}"]


def _list(head: str, rows: Iterable[str]) -> list[str]:
    return _function(head, ["return {", *(f"    {row}," for row in rows), "};"])


def _stream(name: str, widths: Mapping[str, int]) -> str:
    payload, valid, ready = (f"top.{_member(f'{name}__{part}')}" for part in ("payload", "valid", "ready"))
    return f"{{&{valid}, &{ready}, &{payload}, sizeof({payload}), {widths[f'{name}__payload']}}}"


def _signals(prefix: str, order: Iterable[str], widths: Mapping[str, int]) -> str:
    # Verilator stores a port of more than 64 bits as an array of words.
    found = ((f"top.{_member(f'{prefix}_{name}')}", widths[f"{prefix}_{name}"]) for name in order)
    return f"{{{', '.join(f'{name}.data()' if width > 64 else f'&{name}' for name, width in found)}}}"
