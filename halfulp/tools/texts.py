"""Text, TOML and JSON files that users write or may have changed."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEEPEST = 50
"""Maximum nesting of lists and tables; a file of this project has at most 8 levels."""


def text_of(path: Path) -> str:
    """Read a file in UTF-8; ValueError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not encoded in UTF-8") from error


def toml_of(text: str) -> dict[str, Any]:
    """Parse TOML; ValueError if it is invalid or nested too deeply."""
    table: dict[str, Any] = _parsed(tomllib.loads, text, "TOML")
    return table


def json_of(text: str) -> Any:
    """Parse JSON; ValueError if it is invalid or nested too deeply."""
    return _parsed(json.loads, text, "JSON")


def _parsed(loads: Callable[[str], Any], text: str, language: str) -> Any:
    # Parsers recurse, and so does code that compares, prints or hashes their results.
    deep = f"invalid {language}: lists and tables are nested more than {DEEPEST} levels deep"
    try:
        document = loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    except ValueError as error:
        raise ValueError(f"invalid {language}: {error}") from error
    level = [document]
    for _ in range(DEEPEST + 1):
        level = [part for value in level if isinstance(value, dict | list) for part in _parts(value)]
    if level:
        raise ValueError(deep)
    return document


def _parts(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value
