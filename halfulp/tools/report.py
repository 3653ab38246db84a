"""A report: tables, plots, and a record of what was measured, as the files of one folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .digests import version
from .paths import write_whole

if TYPE_CHECKING:
    # pandas takes long to load.
    from .tables import Table


@dataclass(frozen=True)
class Report:
    """Everything that a command shows and writes.

    Parameters
    ----------
    tables : dict of str to Table
        By the names of their files, without endings.
    plots : dict of str to callable
        Functions that draw a figure, by the names of its files. They run when it is written.
    records : dict of str to str
        Texts of files with all figures, by names.
    title, made_by : str
        Title and provenance that the files of plots carry.
    endings : sequence of str
        Kinds of files of plots: ``png``, ``svg``, ``pdf``.
    hidden : sequence of str
        Names of tables that are written and not printed.
    """

    tables: Mapping[str, "Table"]
    plots: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    made_by: str = ""
    endings: Sequence[str] = ("png", "pdf")
    hidden: Sequence[str] = ()

    def markdown(self) -> str:
        """The tables that are printed."""
        return "\n".join(table.markdown() for name, table in self.tables.items() if name not in self.hidden)

    def write(self, folder: Path) -> list[Path]:
        """Write all files to a folder; returns their paths."""
        paths = []
        for name, text in self.records.items():
            paths.append(folder / name)
            write_whole(paths[-1], text)
        for name, table in self.tables.items():
            paths += table.write(folder, name)
        if self.plots:
            # matplotlib takes long to load.
            from .plots import write

            about = {"title": self.title, "description": f"Made by {self.made_by}"} if self.made_by else {}
            for name, plot in self.plots.items():
                paths += write(plot(), folder, name, endings=self.endings, about=about)
        return paths


def provenance(command: str, versions: Mapping[str, str]) -> str:
    """A command and the versions that made figures, in a line."""
    return f"{command}; {', '.join(f'{name} {number}' for name, number in versions.items())}"


def versions(*distributions: str) -> dict[str, str]:
    """Versions of Python packages."""
    return {name: version(name) for name in distributions}
