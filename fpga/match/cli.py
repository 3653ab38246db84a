"""Commands for arrays on boards: `halfulp match` and `halfulp tile`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from halfulp.boards.targets import Target, used_blocks
from halfulp.fpga.vendor.cli import target_option
from halfulp.hdl.specs import Build, RunningSumSpec, parse_cell
from halfulp.hdl.specs.build import AREA
from halfulp.options import GOAL, MAC_TEXTS
from halfulp.tools.commands import (
    Parsed,
    Refused,
    listed,
    new_folder,
    publish,
    report_folder,
    requests,
    scheduled,
    show,
    write_folder,
    written,
)
from halfulp.tools.errors import CheckError
from halfulp.tools.jobs import JobPool
from halfulp.tools.progress import Bar

if TYPE_CHECKING:
    from halfulp.boards.board import Board

MAC = "e5m2*e5m2+e6m5.sr10"

NETWORKS = ("lenet5", "vgg16", "resnet20", "resnet50", "gru", "nanogpt", "smallgpt")
"""Networks of `halfulp.fpga.match.workload`, which needs torch."""


def _board_of(name: str) -> "Board":
    # Some boards import Amaranth for their platforms, which takes long.
    from halfulp.boards.catalogue import board_of

    return board_of(name)


def _boards() -> list[str]:
    from halfulp.boards.catalogue import BOARDS

    return list(BOARDS)


_board = click.option(
    "--board",
    default="u55c",
    metavar="NAME",
    type=Parsed(_board_of, lambda _: _boards()),
    help="board of `halfulp list boards`; default: u55c",
)
_mac = click.option(
    "--mac", default=MAC, metavar="MAC", type=Parsed(parse_cell, MAC_TEXTS), help=f"multiply-accumulate; default: {MAC}"
)


@click.command()
@click.argument("network", type=Parsed(words=NETWORKS))
@_board
@_mac
@click.option(
    "--model",
    type=click.Choice(["exact", "published"]),
    default="exact",
    metavar="NAME",
    help="exact, or published: Ben Ali et al. (DATE 2025)",
)
@click.option("--clock", metavar="MHZ", type=float, help="clock of all arrays; default: that of published ones")
@click.option("--batch", metavar="N", type=int, help="examples per step; default: as in training")
@click.option("--inference", is_flag=True, help="forward products only, without gradients")
@scheduled
@written
def match(
    network: str,
    board: "Board",
    mac: RunningSumSpec,
    model: str,
    clock: float | None,
    batch: int | None,
    inference: bool,
    pool: JobPool,
    output: Path | None,
) -> None:
    """Find the arrays on a board that run a network fastest.

    The result is the size, number and clock of the arrays. NETWORK is lenet5, vgg16, resnet20, resnet50, gru, nanogpt,
    smallgpt, or the module:function of a function that returns a torch model and its input. --model published takes the
    arrays of the paper with its estimates, instead of those of this library.
    """
    if clock is not None and model == "published":
        raise Refused("published arrays have fixed clocks; use --clock with --model exact")
    folder = report_folder(output)
    # torch takes long to load.
    from .search import published, searched
    from .tables import report
    from .workload import workload

    with requests(), pool, Bar("match") as bar:
        load = workload(network, batch, training=not inference)
        if model == "published":
            options, notes = published(board, load, mac)
        else:
            options, notes = searched(board, load, mac, bar, pool, clock=clock)
    stem = f"match-{network.replace(':', '-').replace('.', '-')}-{board.name}"
    words = ["halfulp", "match", network, "--board", board.name, "--mac", mac.expression, "--model", model]
    publish(report(options, board, load, notes, stem, shlex.join(words)), folder)


@click.command()
@_mac
@click.option("--n", default=8, metavar="N", type=int, help="elements per array; default: 8")
@click.option("--m", default=8, metavar="N", type=int, help="multiply-accumulates per element; default: 8")
@click.option("--cores", default=1, metavar="N", type=int, help="number of arrays; default: 1")
@_board
@click.option("--depth", default=32, metavar="N", type=int, help="vectors per row of a tile; default: 32")
@click.option("--rows", default=1, metavar="N", type=int, help="rows of a tile per element; default: 1")
@click.option("--pipeline", metavar="N", type=int, help="register stages; default: as the clock needs")
@click.option(
    "--goal",
    default=AREA,
    metavar="GOAL",
    type=GOAL,
    help="area (default), speed, or loop: short loops of sums",
)
@click.option("--clock", metavar="MHZ", type=float, help="clock of the kernels; default: that of the board")
@click.option("--estimate", is_flag=True, help="estimate the size from small kernels, in minutes")
@target_option(help="device of the flow of the bare array; default: vu9p")
@click.option("--synth", is_flag=True, help="synthesise the kernel instead of estimating its size")
@click.option("-o", "--output", metavar="FOLDER", required=True, help="a new or an empty folder")
def tile(
    mac: RunningSumSpec,
    n: int,
    m: int,
    cores: int,
    board: "Board",
    depth: int,
    rows: int,
    pipeline: int | None,
    goal: str,
    clock: float | None,
    target: Target,
    estimate: bool,
    synth: bool,
    output: str,
) -> None:
    """Write systolic arrays as kernels for a board.

    The folder contains the Verilog, the kernel description, the packaging script, the link configuration, the host
    program and a Makefile; tile/ contains a flow that places and routes one bare array. A board without an XRT platform
    gets only this flow. Register stages are as many as the clock needs by the delay model of the board's device.
    """
    folder = new_folder(output)
    from halfulp.fpga.kernel.arrays import with_source
    from halfulp.fpga.vendor.tile import Design, default_clock
    from halfulp.fpga.vendor.vivado import check

    with requests():
        family, mhz = board.target.family.name, default_clock(board) if clock is None else clock
        board.target.check_clock(mhz)
        build = Build(clock=mhz, target=family) if pipeline is None else Build(pipeline)
        build = replace(build, goal=goal)
        design = Design(board, with_source(mac), n, m, cores, depth, rows, build, clock, target)
        check(target, design.clock)
        with Bar("tile") as bar:
            bar.total("register stages")
            model, stages = design.array().mac_mhz(family), design.array().stages
            cells = design.measured(bar) if synth else design.cells(bar) if estimate else design.recorded()
            if cells is not None:
                design.check(cells)
            bar.total("Verilog")
            files = design.files()
    written = write_folder(folder, files)
    limit, _ = board.target.max_clock(() if cells is None else used_blocks(cells))
    size = "of unknown size, because its costs are not recorded (add --estimate or --synth)"
    if cells is not None:
        count = f"{'' if synth else 'about '}{cores * cells.lut:,}"
        source = "synthesis" if synth else "synthesis of small kernels" if estimate else "records of small kernels"
        size = f"{count} LUT by {source}, {cells.share(board.target, cores)['LUT']:.1f} %"
    text = (
        f"{cores} x {n} x {m} multiply-accumulates of {design.mac.expression} for {board.title}: "
        f"{size}, at a requested clock of {design.clock:g} MHz, with {stages} register stage{'s' * (stages != 1)} "
        f"({min(model, limit):.0f} MHz by the delay model)"
        + ("" if board.platform else f"; {board.name} has no XRT platform, so tile/ has only the flow of the array")
    )
    sizes = {"cores": cores, "n": n, "m": m, "lut": cells and cores * cells.lut, "stages": stages}
    clocks = {"clock": design.clock, "estimated_clock": min(model, limit)}
    show(text, {"mac": design.mac.expression, "board": board.name, **sizes, **clocks, "files": listed(written)})
    if model < design.clock:
        raise CheckError(
            f"multiply-accumulates with {stages} register stages miss the clock of {design.clock:g} MHz by the delay "
            f"model, which gives {model:.1f} MHz; omit --pipeline, or lower --clock"
        )
