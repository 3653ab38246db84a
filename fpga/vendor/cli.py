"""Command `halfulp emit`: a unit as plain Verilog, with scripts for Vivado, or as a package with wrappers and tests."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from halfulp.boards.targets import DEVICES, TARGETS, Target, target_of
from halfulp.fpga.constraints import DEFAULT_CLOCK
from halfulp.hdl.specs.build import MAX_BESIDE
from halfulp.implementation import implementation
from halfulp.options import UNIT, unit_options
from halfulp.tools.commands import Command, Parsed, Refused, listed, new_folder, requests, show, write_folder

DEFAULT_TARGET = "vu9p"
"""Default device."""

target_option = partial(
    click.option, "--target", default=DEFAULT_TARGET, metavar="NAME", type=Parsed(target_of, DEVICES)
)
"""Option for a device."""


def clock_option(tool: str) -> Any:
    """Return the option for a clock, which also chooses the number of register stages; see `stages_of`."""
    text = f"clock to meet by few stages; default of {tool}: {DEFAULT_CLOCK}"
    return click.option("--clock", metavar="MHZ", type=float, help=text)


def stages_of(
    clock: float | None, target: Target, options: dict[str, Any], *, routed: bool, flow: str = "--flow vivado"
) -> dict[str, Any]:
    """Return the options of a build for a clock on a device.

    With ``--pipeline`` the number of stages is given, and the clock is only a constraint of place and route, which the
    option ``flow`` asks for.
    """
    if clock is None:
        return {}
    target.check_clock(clock)
    if routed and options["pipeline"] is not None:
        return {}
    if options["pipeline"]:
        raise ValueError(
            f"--clock {clock:g} chooses register stages, and --pipeline gives {options['pipeline']}; omit one, or add "
            f"{flow}, which places and routes these stages for the clock"
        )
    return {"clock": clock, "target": target.family.name}


def _names(text: str) -> dict[str, str]:
    """Parse names of ports such as ``clk=aclk,rst=aresetn``."""
    names: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        role, equals, name = part.partition("=")
        if not (role and equals and name) or role in names:
            raise ValueError(f"invalid --ports {text!r}: expected each port once, such as clk=aclk,rst=aresetn")
        names[role] = name
    return names


_STREAM = (
    click.option("--tlast", is_flag=True, help="TLAST of streams; sums of accumulators end at it"),
    click.option("--tuser", metavar="BITS", type=click.IntRange(1, MAX_BESIDE), help="bits of TUSER of streams"),
    click.option("--tkeep", is_flag=True, help="TKEEP of streams"),
    click.option("--registered", is_flag=True, help="ready of streams from a register"),
    click.option("--separate", is_flag=True, help="a stream for each operand"),
)
"""Options of streams, which are parameters of `halfulp.units.AxiStream`."""

_STREAM_NAMES = ("tlast", "tuser", "tkeep", "registered", "separate")


def _stream_options(function: Any) -> Any:
    for option in reversed(_STREAM):
        function = option(function)
    return function


@click.command(cls=Command)
@unit_options
@click.argument("more", nargs=-1, metavar="[TEXT]...", type=UNIT)
@click.option("--package", is_flag=True, help="write a folder with wrappers, benches and manifest")
@click.option("--name", metavar="NAME", help="name of module or package; default: from the text")
@click.option("--prefix", default="", metavar="TEXT", help="prefix of the names of modules")
@click.option("--reset", default="sync", metavar="STYLE", help="sync, async, sync-low or async-low; default: sync")
@click.option("--enable", default="high", metavar="LEVEL", help="active level of en: high or low; default: high")
@click.option(
    "--ports", default="", metavar="NAMES", type=Parsed(_names), help="names of controls: clk=aclk,rst=aresetn,en=ce"
)
@click.option("--no-initial", is_flag=True, help="no initial values of registers, for ASICs")
@click.option("--stream", is_flag=True, help="AXI4-Stream for operands and results")
@_stream_options
@click.option("--valid", is_flag=True, help="valid from operands to results, through register stages")
@click.option("--tag", metavar="BITS", type=click.IntRange(1, MAX_BESIDE), help="tag from operands to results")
@click.option("-o", "--output", metavar="PATH", help="file, or folder; default: standard output")
@click.option(
    "--flow", metavar="TOOL", type=click.Choice(["vivado"]), help="vivado: write a folder with scripts for it"
)
@target_option(default=None, help="device of a flow, or family whose delays place stages")
@clock_option("a flow")
def emit(
    unit: str,
    fmt: str | None,
    more: tuple[str, ...],
    package: bool,
    name: str | None,
    prefix: str,
    reset: str,
    enable: str,
    ports: dict[str, str],
    no_initial: bool,
    stream: bool,
    valid: bool,
    tag: int | None,
    output: str | None,
    flow: str | None,
    target: Target | None,
    clock: float | None,
    **options: Any,
) -> None:
    """Write a unit as plain Verilog.

    With --flow and --target, write a folder with the Verilog and the scripts of a vendor's tool. With --package, write
    a folder for people who do not write Python: wrappers, declarations, vectors, benches, and a manifest. A package
    may have several units, each given by a text. Its streams
    take --tlast, --tuser, --tkeep, --registered and --separate, without --stream.
    """
    streams = {name: options.pop(name) for name in _STREAM_NAMES}
    streams["tuser"] = streams["tuser"] or 0
    _check_wrappers(streams, stream=stream, tracks=valid or tag is not None, other=_folder_of(package, flow))
    if package and flow is not None:
        raise Refused("--package and --flow write different folders; choose one")
    with requests():
        device = target or TARGETS[DEFAULT_TARGET]
        stages = stages_of(clock, device, options, routed=flow is not None)
        placed = flow is None and clock is None and target is not None and bool(options["pipeline"])
        if placed:
            stages = {"target": device.family.name}
        controls: dict[str, Any] = {"reset": reset, "enable": enable, "ports": ports, "initial": not no_initial}
    if package:
        if target is not None and clock is None and not placed:
            raise Refused("--target is the device of a clock or of register stages; add --clock or --pipeline")
        units = _texts(unit, fmt, more)
        _package(units, output, name=name, prefix=prefix, controls=controls, streams=streams, **options, **stages)
        return
    if more:
        raise Refused(
            f"expected one unit before {more[0]!r}; several need --package, and further formats an option such as --b "
            "or --to"
        )
    with requests():
        bare = flow is None and not (stream or valid or tag)
        asked = implementation(unit, fmt, composed=bare, **options, **stages)
        built = _wrapped(asked.component(), streams if stream else None, valid, tag)
        name, controls = _named(built, name, prefix, controls)
    if flow is not None:
        if enable != "high" or ports or no_initial:
            raise Refused("--enable, --ports and --no-initial are for Verilog and packages; omit them with --flow")
        clock = DEFAULT_CLOCK if clock is None else clock
        _flow(built, asked.spec.text, output, target, clock_mhz=clock, dsp=asked.build.dsp, name=name, reset=reset)
        return
    if target is not None and clock is None and not placed:
        raise Refused("--target is the device of a flow or of stages; add --flow vivado, --clock or --pipeline")
    _verilog(built, asked.spec.text, output, name=name, **controls)


def _folder_of(package: bool, flow: str | None) -> str:
    """Return the option that writes a folder, or an empty text."""
    return "--package" if package else "" if flow is None else "--flow"


def _check_wrappers(streams: dict[str, Any], *, stream: bool, tracks: bool, other: str) -> None:
    """Refuse options of wrappers that have no effect beside others; ``other`` is an option that writes a folder."""
    if stream and other:
        raise Refused("a package has the streams of its units; omit --stream" if other == "--package" else _NO_FLOW)
    if tracks and (stream or other):
        beside = "--stream" if stream else other
        raise Refused(f"--valid and --tag are for Verilog of a unit, not for {beside}; a stream has --tuser instead")
    if (given := [name for name, value in streams.items() if value]) and not stream and other != "--package":
        raise Refused(f"--{given[0]} is an option of streams; add --stream or --package")


_NO_FLOW = "--stream is for Verilog and packages; omit it with --flow"


def _wrapped(unit: Any, streams: dict[str, Any] | None, valid: bool, tag: int | None) -> Any:
    """Return a unit in the wrapper that options ask for, or as it is."""
    from halfulp.units import AxiStream, Tracked

    if streams is not None:
        return AxiStream(unit, **streams)
    return Tracked(unit, valid=valid, tag=tag or 0) if valid or tag else unit


def _named(built: Any, name: str | None, prefix: str, controls: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the name of a module that is not the default one of `emit`, and the options of its controls."""
    from halfulp.units import AxiStream
    from halfulp.units.verilog import check_name, default_name

    if prefix or name is not None or isinstance(built, AxiStream):
        name = check_name(prefix + (default_name(built, **controls) if name is None else name))
    if isinstance(built, AxiStream):
        controls = controls | built.emit_options(controls["reset"], controls["ports"])
    return name, controls


def _texts(unit: str, fmt: str | None, more: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Return the units of a package: one in the short form, or several texts."""
    texts = [text for text in (unit, fmt, *more) if text is not None]
    if not more and unit.isalnum():
        return [(unit, fmt)]
    return [(text, None) for text in texts]


def _package(units: list[tuple[str, str | None]], output: str | None, *, name: str | None, **how: Any) -> None:
    from halfulp.tools.progress import Bar

    if output is None or output == "-":
        raise Refused("--package needs the name of a folder; add -o FOLDER")
    folder = new_folder(output)
    prefix, controls, streams = (how.pop(word) for word in ("prefix", "controls", "streams"))
    with requests():
        built = [implementation(unit, fmt, **how).component() for unit, fmt in units]
        if name is None and len(built) > 1:
            raise ValueError("a package of several units needs a name; add --name NAME")
        from halfulp.fpga.package import files
        from halfulp.fpga.package.manifest import file_kind
        from halfulp.units.verilog import default_name

        with Bar("emit --package") as bar:
            name = default_name(built[0], **controls) if name is None else name
            texts = files(built, name, prefix=prefix, progress=bar, streams=streams, **controls)
    kinds = [
        {"path": path, "kind": file_kind(name)} for path, name in zip(write_folder(folder, texts), texts, strict=True)
    ]
    show(None, {"units": [unit.spec.text for unit in built], "files": kinds})


def _verilog(built: Any, unit: str, output: str | None, **how: Any) -> None:
    from halfulp.sim.build import verilog
    from halfulp.tools.paths import write_whole
    from halfulp.tools.progress import Bar

    path = Path(output) if output not in (None, "-") else None
    if path is not None and path.is_dir():
        raise Refused(f"{path} is a folder; expected the name of a file after -o")
    if path is not None and not path.parent.is_dir():
        raise Refused(f"there is no folder {path.parent}; create it before writing {path.name}")
    if path is not None and path.suffix.lower() in (".vhd", ".vhdl"):
        raise Refused(
            f"units are written as Verilog; expected a name such as {path.stem}.v after -o, or --package, which adds "
            "declarations of components in VHDL"
        )
    with requests(), Bar(f"emit {built.name}"):
        text = verilog(built, **how)
    if path is None:
        show(text.removesuffix("\n"), {"units": [unit], "files": [], "text": text})
    else:
        write_whole(path, text)
        show(None, {"units": [unit], "files": listed([path])})


def _flow(built: Any, unit: str, output: str | None, target: Target | None, **how: Any) -> None:
    from .vivado import knows, scripts

    if target is None or not knows(target):
        devices = ", ".join(name for name, device in TARGETS.items() if knows(device))
        raise Refused(f"--flow needs a --target of {devices}" + (f", not {target.name}" if target else ""))
    if output is None or output == "-":
        raise Refused("--flow needs the name of a folder; add -o FOLDER")
    folder = new_folder(output)
    with requests():
        texts = scripts(built, target, **how)
    show(None, {"units": [unit], "files": listed(write_folder(folder, texts))})
