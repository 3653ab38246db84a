"""Tables of results as Markdown, CSV and LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

from . import html
from .paths import write_whole


@dataclass(frozen=True)
class Table:
    """Table of results with number formats and notes.

    Parameters
    ----------
    title : str
        One line, without a full stop.
    frame : DataFrame
        Rows of texts and numbers; missing values are NaN or None. The index is not shown.
    formats : dict of str to str
        Number formats of columns in Markdown and LaTeX, such as ``,.0f`` or ``.3g``; CSV has all digits.
    notes : sequence of str
        Sentences below the table, such as definitions and sources.
    best : dict of str to str
        Best value of a column, ``lowest`` or ``highest``, which is bold in Markdown and LaTeX; no value is bold if all
        are equal.
    only_csv : sequence of str
        Columns that only the CSV file has, because rows would be too long.
    """

    title: str
    frame: pd.DataFrame
    formats: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    best: dict[str, Literal["lowest", "highest"]] = field(default_factory=dict)
    only_csv: Sequence[str] = ()

    def markdown(self) -> str:
        """Return title, table and notes as Markdown."""
        shown = self._texts()
        bold = shown.where(~self._is_best(), "**" + shown + "**")
        body = bold.to_markdown(index=False, disable_numparse=True, colalign=self._sides())
        return "\n\n".join([f"## {self.title}", body, "\n".join(f"- {note}" for note in self.notes)]).rstrip() + "\n"

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        shown = self._texts()
        return html.table(self.title, shown.itertuples(index=False, name=None), list(shown.columns), self.notes)

    def csv(self) -> str:
        """Return the rows as CSV, with all columns and digits."""
        return self.frame.to_csv(index=False, lineterminator="\n")

    def latex(self) -> str:
        """Return a LaTeX ``table`` with booktabs rules, scaled to at most the line width, and the notes below it."""
        sides = "".join(side[0] for side in self._sides())
        style = (
            self._texts().style.hide(axis="index").format(escape="latex").format_index(escape="latex", axis="columns")
        )
        best = self._is_best().replace({True: "best:--rwrap", False: ""})
        body = style.apply(lambda _: best, axis=None).to_latex(hrules=True, column_format=sides)
        notes = "\n".join(f"\\par\\raggedright\\footnotesize {_escaped(note)}" for note in self.notes)
        return (
            f"% needs \\usepackage{{booktabs,graphicx}}\n{_BEST if self.best else ''}\\begin{{table}}\n\\centering\n"
            f"\\caption{{{_escaped(self.title)}}}\n{_FIT_LINE}{body.rstrip()}}}\n{notes}\n\\end{{table}}\n"
        )

    def write(self, folder: Path, stem: str) -> list[Path]:
        """Write the table to a folder as ``stem.md``, ``stem.csv`` and ``stem.tex``, and return the paths."""
        texts = {"md": self.markdown(), "csv": self.csv(), "tex": self.latex()}
        paths = [folder / f"{stem}.{ending}" for ending in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text)
        return paths

    def _columns(self) -> pd.DataFrame:
        """Return the columns that Markdown and LaTeX show."""
        return self.frame.drop(columns=list(self.only_csv))

    def _texts(self) -> pd.DataFrame:
        """Return the shown columns as texts."""
        return pd.DataFrame(
            {
                name: [_text(value, self.formats.get(str(name), "")) for value in column]
                for name, column in self._columns().items()
            }
        )

    def _is_best(self) -> pd.DataFrame:
        """Return True for cells with the best value of their column."""
        seen = self._columns()
        out = pd.DataFrame(False, index=seen.index, columns=seen.columns).reset_index(drop=True)
        for name, which in self.best.items():
            column = seen[name].reset_index(drop=True)
            if column.nunique() > 1:
                out[name] = column == (column.min() if which == "lowest" else column.max())
        return out

    def _sides(self) -> list[str]:
        """Return the alignment of columns: numbers right, texts left."""
        return ["right" if pd.api.types.is_numeric_dtype(column) else "left" for _, column in self._columns().items()]


# Bold type with digits of normal width, so that decimal points are aligned.
_BEST = "\\providecommand{\\best}[1]{{\\fontseries{b}\\selectfont #1}}\n"

# Scale the table to the line width if it is wider.
_FIT_LINE = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"


def _text(value: object, spec: str) -> str:
    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else format(value, spec)  # type: ignore[call-overload]  # values of a table are plain


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    mark: f"\\{mark}" for mark in "&%$#_{}"
}


def _escaped(text: str) -> str:
    """Escape a text for LaTeX."""
    return "".join(_SPECIAL.get(mark, mark) for mark in text)
