"""The command `halfulp uvm`."""

import sys
from typing import Any

import click

from halfulp.implementation import implementation, implementations
from halfulp.options import unit_options
from halfulp.tools.commands import Command, requests, show


@click.command(cls=Command)
@unit_options
@click.option("--n", metavar="N", type=int, help="rows of the array (tile); default: 3")
@click.option("--m", metavar="N", type=int, help="columns of the array (tile); default: 2")
@click.option("--depth", metavar="N", type=int, help="vectors per row of a chain (tile); default: a grid")
@click.option("--rows", metavar="N", type=int, help="rows per element of a chain (tile); default: 1")
@click.option("--sequence", default="campaign", metavar="NAME", help="name of the sequence; default: campaign")
@click.option("--test", "tests", metavar="FILE:CLASS", help="test class of your own, such as my_tests.py:MyTest")
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the random generator; default: 0")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="maximum operations per sequence; default: 2048")
@click.option("--vector", metavar="CODES", help="run one vector, such as 0x3c,0x40,0x001")
@click.option("--wave", is_flag=True, help="write a waveform with decoded numbers")
def uvm(
    unit: str,
    fmt: str | None,
    sequence: str,
    tests: str | None,
    seed: int,
    vectors: int | None,
    vector: str | None,
    wave: bool,
    **options: Any,
) -> None:
    """Check a unit in a pyuvm environment.

    UNIT `all` checks every unit of the catalogue; `tile` checks a systolic array with matrix products. Sequences are
    campaign, exhaustive, directed, random, chain, storm and regressions. Results are also written as JUnit XML, in
    results/ of the build folder.
    """
    from halfulp.sim.ports import Ports
    from halfulp.sim.report import summary
    from halfulp.tools.progress import Bar

    from .run import run
    from .tests import UnitTest

    with requests():
        if unit == "all" and vector is not None:
            raise ValueError("--vector goes with one unit, not with all of them")
        given = {name: options.pop(name) for name in ("n", "m", "depth", "rows")}
        sizes = {name: size for name, size in given.items() if size is not None}
        chosen, test = None, tests or UnitTest
        if unit == "tile":
            # Arrays need torch, which takes long to load.
            from .tile import TileRequest, TileTest

            if vector is not None or wave:
                raise ValueError(f"--{'wave' if wave else 'vector'} goes with one unit, not with a tile")
            asked: list[Any] = [TileRequest(implementation("mac", fmt, **options), **sizes)]
            test = tests or TileTest
        else:
            if sizes:
                raise ValueError(f"--{next(iter(sizes))} goes with the unit tile, not with {unit}")
            asked = implementations(unit, fmt, **options)
            if vector is not None:
                chosen = Ports.inputs_of(asked[0].component()).read_vector(vector)
    passed = True
    for request in asked:
        with Bar(f"uvm {unit} {fmt}") as bar, requests():
            given = {"seed": seed, "limit": vectors, "vector": chosen, "sequence": sequence, "wave": wave}
            result = run(request, test=test, progress=bar, **given)
        show(summary(result), result.data)
        passed = passed and result.passed
    sys.exit(0 if passed else 1)
