"""Reports: tables, plots and records, written to a folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .digests import version
from .paths import write_whole

if TYPE_CHECKING:
    # Importing pandas is slow.
    from .tables import Table


@dataclass(frozen=True)
class Report:
    """Report of a command.

    Parameters
    ----------
    tables : dict of str to Table
        Tables by file name without suffix.
    plots : dict of str to callable
        Functions that draw a figure, by file name without suffix; called when the report is written.
    records : dict of str to str
        Contents of files with all measurements, by file name.
    title, made_by : str
        Title and provenance in the metadata of plots.
    hidden : sequence of str
        Names of tables that are written but not printed.
    """

    tables: Mapping[str, "Table"]
    plots: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    made_by: str = ""
    hidden: Sequence[str] = ()

    def markdown(self) -> str:
        """Return the printed tables as Markdown."""
        return "\n".join(table.markdown() for name, table in self.tables.items() if name not in self.hidden)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all tables by name, with the columns of their CSV files."""
        return {
            name: [{str(key): value for key, value in row.items()} for row in table.frame.to_dict("records")]
            for name, table in self.tables.items()
        }

    def _repr_html_(self) -> str:
        """Return the printed tables for notebooks."""
        return "".join(table._repr_html_() for name, table in self.tables.items() if name not in self.hidden)

    def write(self, folder: Path) -> list[Path]:
        """Write all files to a folder and return their paths."""
        paths = []
        for name, text in self.records.items():
            paths.append(folder / name)
            write_whole(paths[-1], text)
        for name, table in self.tables.items():
            paths += table.write(folder, name)
        if self.plots:
            # Importing matplotlib is slow.
            from .plots import write

            about = {"title": self.title, "description": f"Made by {self.made_by}"} if self.made_by else {}
            for name, plot in self.plots.items():
                figure = plot()
                for ending in ("svg", "pdf"):
                    paths.append(folder / f"{name}.{ending}")
                    write(figure, paths[-1], about=about)
        return paths


def provenance(command: str, versions: Mapping[str, str]) -> str:
    """Return a line with the command and versions that made a report."""
    return f"{command}; {', '.join(f'{name} {number}' for name, number in versions.items())}"


def versions(*distributions: str) -> dict[str, str]:
    """Return the versions of Python packages."""
    return {name: version(name) for name in distributions}
