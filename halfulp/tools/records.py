"""CSV files with a row for each result."""

import csv
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def finite(text: str) -> float:
    """Parse a finite number; ValueError for infinity and NaN."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not finite")
    return number


def read_records(path: Path, columns: Mapping[str, Callable[[str], Any]]) -> list[dict[str, Any]]:
    """Read the rows of a CSV file.

    Parameters
    ----------
    path : Path
        CSV file.
    columns : dict of str to callable
        Required columns and the functions that parse them; other columns are texts.

    Raises
    ------
    ValueError
        If the file cannot be read, a column is missing, or a text cannot be parsed; the message names the line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file, strict=True)
            for name in columns:
                if name not in (table.fieldnames or ()):
                    raise ValueError(f"{path.name} has no column {name}; its columns are {table.fieldnames}")
            return [_converted(row, columns, f"{path.name}, line {table.line_num}") for row in table]
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeError, csv.Error) as error:
        raise ValueError(f"{path} is no CSV: {error}") from error


def _converted(row: dict[str, Any], columns: Mapping[str, Callable[[str], Any]], place: str) -> dict[str, Any]:
    for name, kind in columns.items():
        try:
            row[name] = kind(row[name] or "")
        except (TypeError, ValueError) as error:
            raise ValueError(f"{place}: {name} {row[name]!r} is invalid: {error}") from None
    return row
