"""Commands about cost: `halfulp report`."""

import click


@click.group()
def report() -> None:
    """Figures beside published ones, as Markdown, CSV and LaTeX."""
