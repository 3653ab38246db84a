"""Commands about boards: `halfulp match` and `halfulp tile`."""

from pathlib import Path

import click

from halfulp.sim.cli import requests

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
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="where the files go; reports/ of the build folder by default",
)
def match(
    network: str,
    name: str,
    text: str,
    model: str,
    clock: float | None,
    batch: int | None,
    inference: bool,
    output: Path | None,
) -> None:
    """Find the arrays on a board that NETWORK runs fastest on: their size, their number and their clock.

    NETWORK is lenet5, resnet20 or nanogpt, or module:function of a function that returns a torch model and its input.
    """
    from halfulp.hdl.formats import MacSpec
    from halfulp.sim.paths import build_root, machine_errors
    from halfulp.sim.progress import Bar

    from .catalogue import board_of

    with requests():
        board = board_of(name)
        mac = MacSpec.parse(text)
        if clock is not None and model == "published":
            raise ValueError("published arrays have the clocks that were published; --clock is for --model exact")
    folder = output or build_root() / "reports"
    # What is no place for files is told before the work.
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    # torch takes long to load.
    from halfulp.fpga.match import published, searched
    from halfulp.fpga.match_view import leave, table
    from halfulp.fpga.workload import workload

    with requests(), Bar("match") as bar:
        load = workload(network, batch, training=not inference)
        if model == "published":
            options, notes = published(board, load, mac)
        else:
            options, notes = searched(board, load, mac, bar, clock=clock)
    click.echo(table(options, board, load, notes).markdown(), nl=False)
    stem = f"match-{network.replace(':', '-').replace('.', '-')}-{board.name}"
    for path in leave(options, board, load, notes, folder, stem):
        click.echo(f"halfulp: wrote {path}", err=True)
