"""Commands about boards: `halfulp match` and `halfulp tile`."""

import shlex
from pathlib import Path

import click

from halfulp.tools.commands import Refused, publish, report_folder, requests, scheduled, written
from halfulp.tools.jobs import JobPool

MAC = "e5m2*e5m2+e6m5.sr10"


@click.command()
@click.argument("network")
@click.option("--board", "name", default="u55c", metavar="NAME", help="u55c by default; halfulp list boards")
@click.option("--mac", "text", default=MAC, metavar="MAC", help=f"multiply-accumulate; {MAC} by default")
@click.option(
    "--model",
    type=click.Choice(["exact", "published"]),
    default="exact",
    help="arrays of this library, or those of Ben Ali et al. (DATE 2025) as they estimate them",
)
@click.option("--clock", metavar="MHZ", type=float, help="of all arrays; by default what published ones reached")
@click.option("--batch", metavar="N", type=int, help="examples of a step; as the network is trained by default")
@click.option("--inference", is_flag=True, help="forward products alone, not those of gradients")
@scheduled
@written
def match(
    network: str,
    name: str,
    text: str,
    model: str,
    clock: float | None,
    batch: int | None,
    inference: bool,
    pool: JobPool,
    output: Path | None,
) -> None:
    """Find the arrays on a board that NETWORK runs fastest on: their size, their number and their clock.

    NETWORK is lenet5, resnet20 or nanogpt, or module:function of a function that returns a torch model and its input.
    """
    from halfulp.boards.catalogue import board_of
    from halfulp.hdl.specs import MacSpec
    from halfulp.tools.progress import Bar

    with requests():
        board = board_of(name)
        mac = MacSpec.parse(text)
        if clock is not None and model == "published":
            raise ValueError("published arrays have the clocks that were published; --clock is for --model exact")
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
    words = ["halfulp", "match", network, "--board", name, "--mac", text, "--model", model]
    publish(report(options, board, load, notes, stem, shlex.join(words)), folder)


@click.command()
@click.option("--mac", "text", default=MAC, metavar="MAC", help=f"multiply-accumulate; {MAC} by default")
@click.option("--n", default=8, metavar="N", type=int, help="elements of an array; 8 by default")
@click.option("--m", default=8, metavar="N", type=int, help="multiply-accumulates of an element; 8 by default")
@click.option("--cores", default=1, metavar="N", type=int, help="arrays; 1 by default")
@click.option("--board", "name", default="u55c", metavar="NAME", help="u55c by default; halfulp list boards")
@click.option("--depth", default=32, metavar="N", type=int, help="vectors of a tile's row; 32 by default")
@click.option("--rows", default=1, metavar="N", type=int, help="rows of a tile that an element makes; 1 by default")
@click.option("--pipeline", default=0, metavar="N", type=int, help="register stages; 0 by default")
@click.option("--clock", metavar="MHZ", type=float, help="of the kernels; by default as the board has it")
@click.option("--target", default="vu9p", metavar="DEVICE", help="for the flow of the bare array; vu9p by default")
@click.option("-o", "--output", metavar="FOLDER", required=True, help="a new or an empty folder")
def tile(
    text: str,
    n: int,
    m: int,
    cores: int,
    name: str,
    depth: int,
    rows: int,
    pipeline: int,
    clock: float | None,
    target: str,
    output: str,
) -> None:
    """Write systolic arrays as kernels for a board, with all that its tools and its host need.

    The folder has Verilog, the description of the kernel, the script that packages it, the configuration that links it,
    the host's program, a Makefile for all of these, and in tile/ a flow that places and routes one bare array.
    """
    from halfulp.boards.catalogue import board_of
    from halfulp.hdl.specs import MacSpec
    from halfulp.tools.paths import machine_errors, replacing_folder
    from halfulp.tools.progress import Bar

    folder = Path(output).resolve()
    # A bad place for files is refused before the work.
    with machine_errors(str(folder)):
        if folder.exists() and not folder.is_dir():
            raise Refused(f"{output} is a file; -o takes a folder")
        if folder == Path.cwd() or (folder.is_dir() and any(folder.iterdir())):
            raise Refused(f"{output} is a folder in use; -o takes the name of a new or an empty one")
    with requests():
        board = board_of(name)
        mac = MacSpec.parse(text)
        from halfulp.boards.targets import target_of
        from halfulp.fpga.kernel.arrays import with_source
        from halfulp.fpga.vendor.tile import Design
        from halfulp.fpga.vendor.vivado import check

        bare = target_of(target)
        design = Design(board, with_source(mac), n, m, cores, depth, rows, pipeline, clock, bare)
        check(bare, design.clock)
        with Bar("tile") as bar:
            cells = design.cells(bar)
        design.check(cells)
    with replacing_folder(folder) as scratch:
        for path, content in design.files().items():
            (scratch / path).parent.mkdir(exist_ok=True)
            (scratch / path).write_text(content)
    whole = cells.share(board.target, cores)
    click.echo(
        f"{cores} x {n} x {m} multiply-accumulates of {design.mac.formula} for {board.title}: about "
        f"{cores * cells.lut:,} LUT, {whole['LUT']:.1f} %; {design.clock:g} MHz are asked for"
    )
