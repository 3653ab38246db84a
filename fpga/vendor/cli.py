"""The command `halfulp emit`: a unit as plain Verilog, or with scripts for a vendor's tool."""

from pathlib import Path
from typing import Any

import click

from halfulp.boards.targets import TARGETS
from halfulp.sim.implementation import Implementation, implementation
from halfulp.sim.options import unit_options
from halfulp.tools.commands import Refused, new_folder, requests, write_folder

DEFAULT_CLOCK = 500
"""Default clock in MHz, up to which the tools optimise."""


@click.command()
@unit_options
@click.option("-o", "--output", metavar="PATH", help="file, or folder of a flow; standard output by default")
@click.option("--flow", type=click.Choice(["vivado"]), help="write a folder with scripts for a vendor's tool")
@click.option("--target", metavar="DEVICE", help="device of a flow, such as vu9p")
@click.option("--clock", metavar="MHZ", type=float, help=f"requested clock of a flow; {DEFAULT_CLOCK} by default")
def emit(
    unit: str,
    fmt: str | None,
    output: str | None,
    flow: str | None,
    target: str | None,
    clock: float | None,
    **options: Any,
) -> None:
    """Write UNIT in FMT as plain Verilog, or with --flow and --target a folder for a vendor's tool."""
    with requests():
        asked = implementation(unit, fmt, **options)
    if flow is not None:
        _flow(asked, output, target, DEFAULT_CLOCK if clock is None else clock)
        return
    for option, value in (("--target", target), ("--clock", clock)):
        if value is not None:
            raise Refused(f"{option} needs a flow; add --flow vivado")
    _verilog(asked, output)


def _verilog(asked: Implementation, output: str | None) -> None:
    from halfulp.sim.build import verilog
    from halfulp.tools.paths import write_whole

    with requests():
        built = asked.component()
    text = verilog(built)
    if output is None or output == "-":
        click.echo(text, nl=False)
        return
    path = Path(output)
    if path.is_dir():
        raise Refused(f"{output} is a folder; -o takes the name of a file")
    if not path.parent.is_dir():
        raise Refused(f"there is no folder {path.parent} to write {path.name} to")
    write_whole(path, text)


def _flow(asked: Implementation, output: str | None, target: str | None, clock: float) -> None:
    from .vivado import knows, scripts

    devices = [name for name, device in TARGETS.items() if knows(device)]
    if target not in devices:
        raise Refused(f"--flow takes a --target, one of {', '.join(devices)}" + (f", not {target}" if target else ""))
    if output is None or output == "-":
        raise Refused("--flow writes a folder; name it with -o")
    folder = new_folder(output)
    with requests():
        texts = scripts(asked.component(), TARGETS[target], clock_mhz=clock, dsp=asked.build.dsp)
    write_folder(folder, texts)
