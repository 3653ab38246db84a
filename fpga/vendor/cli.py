"""The command `halfulp emit`: a unit as plain Verilog, or with all that a vendor's tool needs."""

from pathlib import Path
from typing import Any

import click

from halfulp.sim.implementation import Implementation, implementation
from halfulp.sim.options import unit_options
from halfulp.tools.commands import Refused, requests

DEFAULT_CLOCK = 500
"""MHz. What is asked for without a word; the tools optimise until they reach it."""


@click.command()
@unit_options
@click.option("-o", "--output", metavar="PATH", help="file, or folder of a flow; standard output by default")
@click.option("--flow", type=click.Choice(["vivado"]), help="write a folder with scripts for a vendor's tool")
@click.option("--target", metavar="DEVICE", help="device of a flow, such as vu9p")
@click.option("--clock", metavar="MHZ", type=float, help=f"frequency that a flow aims at; {DEFAULT_CLOCK} by default")
def emit(
    unit: str,
    fmt: str | None,
    output: str | None,
    flow: str | None,
    target: str | None,
    clock: float | None,
    **options: Any,
) -> None:
    """Write UNIT in FMT as plain Verilog, or with --flow and --target a folder that a vendor's tool runs on."""
    with requests():
        asked = implementation(unit, fmt, **options)
    if flow is not None:
        _flow(asked, output, target, DEFAULT_CLOCK if clock is None else clock)
        return
    for option, value in (("--target", target), ("--clock", clock)):
        if value is not None:
            raise Refused(f"{option} means something to a flow only; add --flow vivado")
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
    from halfulp.boards.targets import TARGETS
    from halfulp.tools.paths import machine_errors, replacing_folder

    from .vivado import knows, scripts

    devices = [name for name, device in TARGETS.items() if knows(device)]
    if target not in devices:
        raise Refused(f"--flow takes a --target, one of {', '.join(devices)}" + (f", not {target}" if target else ""))
    if output is None or output == "-":
        raise Refused("--flow writes a folder; name it with -o")
    folder = Path(output).resolve()
    # A bad place for files is refused before the work.
    with machine_errors(str(folder)):
        if folder.exists() and not folder.is_dir():
            raise Refused(f"{output} is a file; --flow writes a folder")
        if folder == Path.cwd() or (folder.is_dir() and any(folder.iterdir())):
            raise Refused(f"{output} is a folder in use; -o takes the name of a new or an empty one")
    with requests():
        texts = scripts(asked.component(), TARGETS[target], clock_mhz=clock, dsp=asked.build.dsp)
    with replacing_folder(folder) as scratch:
        for name, text in texts.items():
            (scratch / name).write_text(text)
