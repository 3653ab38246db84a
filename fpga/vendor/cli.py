"""Command `halfulp emit`: a unit as plain Verilog, or with scripts for Vivado."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from halfulp.boards.targets import TARGETS, target_of
from halfulp.sim.implementation import implementation
from halfulp.sim.options import unit_options
from halfulp.tools.commands import Parsed, Refused, new_folder, requests, write_folder

DEFAULT_CLOCK = 500
"""Default requested clock in MHz."""

target_option = partial(click.option, "--target", default="vu9p", metavar="NAME", type=Parsed(target_of))
"""Option for a device."""


@click.command()
@unit_options
@click.option("--name", metavar="NAME", help="module name; default: from the unit's text")
@click.option("--prefix", default="", metavar="TEXT", help="prefix of the module name")
@click.option("--reset", default="sync", metavar="STYLE", help="sync, async, sync-low or async-low; default: sync")
@click.option("-o", "--output", metavar="PATH", help="file, or folder of a flow; default: standard output")
@click.option("--flow", type=click.Choice(["vivado"]), help="write a folder with scripts for a vendor's tool")
@click.option("--target", metavar="DEVICE", help="device of a flow, such as vu9p")
@click.option("--clock", metavar="MHZ", type=float, help=f"requested clock of a flow; default: {DEFAULT_CLOCK}")
def emit(
    unit: str,
    fmt: str | None,
    name: str | None,
    prefix: str,
    reset: str,
    output: str | None,
    flow: str | None,
    target: str | None,
    clock: float | None,
    **options: Any,
) -> None:
    """Write a unit as plain Verilog.

    With --flow and --target, write a folder with the Verilog and the scripts of a vendor's tool.
    """
    from halfulp.units.verilog import check_name

    with requests():
        asked = implementation(unit, fmt, **options)
        built = asked.component()
        if prefix or name is not None:
            name = check_name(prefix + (built.name if name is None else name))
    if flow is not None:
        clock = DEFAULT_CLOCK if clock is None else clock
        _flow(built, output, target, clock_mhz=clock, dsp=asked.build.dsp, name=name, reset=reset)
        return
    for option, value in (("--target", target), ("--clock", clock)):
        if value is not None:
            raise Refused(f"{option} needs a flow; add --flow vivado")
    _verilog(built, output, name=name, reset=reset)


def _verilog(built: Any, output: str | None, **how: Any) -> None:
    from halfulp.sim.build import verilog
    from halfulp.tools.paths import write_whole
    from halfulp.tools.progress import Bar

    path = Path(output) if output not in (None, "-") else None
    if path is not None and path.is_dir():
        raise Refused(f"{output} is a folder; expected the name of a file after -o")
    if path is not None and not path.parent.is_dir():
        raise Refused(f"there is no folder {path.parent}; create it before writing {path.name}")
    with requests(), Bar(f"emit {built.name}"):
        text = verilog(built, **how)
    if path is None:
        click.echo(text, nl=False)
    else:
        write_whole(path, text)


def _flow(built: Any, output: str | None, target: str | None, **how: Any) -> None:
    from .vivado import knows, scripts

    devices = [name for name, device in TARGETS.items() if knows(device)]
    if target not in devices:
        raise Refused(f"--flow needs a --target of {', '.join(devices)}" + (f", not {target}" if target else ""))
    if output is None or output == "-":
        raise Refused("--flow needs the name of a folder; add -o FOLDER")
    folder = new_folder(output)
    with requests():
        texts = scripts(built, TARGETS[target], **how)
    write_folder(folder, texts)
