"""Small tables in HTML, which notebooks show for formats, units, reports and codes."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def table(caption: str, rows: Iterable[Sequence[Any]], header: Sequence[Any] = (), notes: Iterable[str] = ()) -> str:
    """Return a table with a caption, and notes below it.

    Parameters
    ----------
    caption : str
        Text above the table.
    rows : iterable of sequence
        Cells as texts or numbers. A cell that is a pair has a text and the number of columns that it fills.
    header : sequence, optional
        Cells of the first row.
    notes : iterable of str
        Sentences below the table.
    """
    head = f"<thead>{_row(header, 'th')}</thead>" if header else ""
    body = "".join(_row(row, "td") for row in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div><table><caption>{escape(caption)}</caption>{head}<tbody>{body}</tbody></table>{below}</div>"


def _row(cells: Sequence[Any], tag: str) -> str:
    made = []
    for cell in cells:
        text, columns = cell if isinstance(cell, tuple) else (cell, 1)
        made.append(f'<{tag} colspan="{columns}">{escape(str(text))}</{tag}>')
    return f"<tr>{''.join(made)}</tr>"
