"""The command `halfulp uvm`."""

import sys
from typing import Any

import click

from halfulp.sim.implementation import implementation, implementations
from halfulp.sim.options import unit_options
from halfulp.tools.commands import requests

TILE = "tile"
"""What an array of multiply-accumulates is called among the units."""


@click.command()
@unit_options
@click.option("--n", "rows", metavar="N", type=int, help="rows (tile); 3 by default")
@click.option("--m", "columns", metavar="M", type=int, help="columns (tile); 2 by default")
@click.option("--depth", metavar="N", type=int, help="vectors of a row (tile): a chain, and not a grid")
@click.option("--sequence", default="campaign", metavar="NAME", help="what runs; campaign by default")
@click.option("--test", "tests", metavar="FILE:CLASS", help="a test of one's own, such as my_tests.py:MyTest")
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="of everything random; 0 by default")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="most operations of a sequence; 2048 by default")
@click.option("--vector", metavar="CODES", help="run one vector, such as 0x3c,0x40,0x001")
@click.option("--wave", is_flag=True, help="leave a waveform with decoded numbers")
def uvm(
    unit: str,
    fmt: str | None,
    rows: int | None,
    columns: int | None,
    depth: int | None,
    sequence: str,
    tests: str | None,
    seed: int,
    vectors: int | None,
    vector: str | None,
    wave: bool,
    **options: Any,
) -> None:
    """Check UNIT in FMT (e5m2 by default) in a pyuvm environment.

    UNIT `all` checks the catalogue, and `tile` a systolic array, whose operations are matrix products. Sequences are
    campaign, exhaustive, directed, random, chain, storm and regressions. Results are also written as JUnit XML, in
    results of the build folder. Exit codes are those of `halfulp sim`.
    """
    from halfulp.sim.ports import Ports
    from halfulp.sim.report import summary
    from halfulp.sim.vector_text import read_vector
    from halfulp.tools.progress import Bar

    from .run import run
    from .tests import UnitTest

    with requests():
        if unit == "all" and vector is not None:
            raise ValueError("--vector goes with one unit, not with all of them")
        arrays = {"--n": rows, "--m": columns, "--depth": depth}
        if unit != TILE and (given := [name for name, size in arrays.items() if size is not None]):
            raise ValueError(f"{given[0]} goes with the unit {TILE}, not with {unit}")
        chosen = None
        if unit == TILE:
            # Arrays need torch, which takes long to load.
            from .tile import TileRequest, TileTest

            for name, given_ in (("--vector", vector is not None), ("--wave", wave)):
                if given_:
                    raise ValueError(f"{name} goes with one unit, not with a {TILE}")
            sizes = {"n": rows, "m": columns, "depth": depth}
            mac = implementation("mac", fmt, **options)
            asked: list[Any] = [TileRequest(mac, **{name: size for name, size in sizes.items() if size is not None})]
        else:
            asked = implementations(unit, fmt, **options)
            if vector is not None:
                chosen = read_vector(vector, Ports.of(asked[0].component().inputs))
        kind: Any = tests or (TileTest if unit == TILE else UnitTest)
    passed = True
    for request in asked:
        with Bar(f"uvm {unit} {fmt}") as bar, requests():
            result = run(
                request,
                test=kind,
                seed=seed,
                limit=vectors,
                vector=chosen,
                sequence=sequence,
                wave=wave,
                progress=bar,
            )
        click.echo(summary(result))
        passed = passed and result.passed
    sys.exit(0 if passed else 1)
