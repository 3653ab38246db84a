"""Checks of parameters."""

import difflib
from collections.abc import Callable, Collection
from typing import TypeVar

Number = TypeVar("Number")


def did_you_mean(word: str, known: Collection[str], other: str = "") -> str:
    """Return a question about the most similar name, also of small letters; ``other`` if none is similar."""
    near = [match for text in (word.lower(), word) for match in difflib.get_close_matches(text, known, n=1)]
    return f"did you mean {near[0]}?" if near else other


def check_int(name: str, value: object, owner: str, low: int | None = None, high: int | None = None) -> None:
    """Raise TypeError unless a parameter is an int, and ValueError if it is out of range."""
    owner = f"{'an' if owner[0] in 'aeio' else 'a'} {owner}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} of {owner} must be an int, not {type(value).__name__}")
    if (low is not None and value < low) or (high is not None and value > high):
        limits = f"{low} or more" if high is None else f"{low} to {high}"
        raise ValueError(f"{name} {value} of {owner} is out of range; expected {limits}")


def check_bool(name: str, value: object, owner: str) -> None:
    """Raise TypeError unless a parameter is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} of a {owner} must be a bool, not {type(value).__name__}")


def read_number(text: str, kind: Callable[[str], Number]) -> Number:
    """Parse a number in digits 0 to 9; `int` and `float` also accept underscores and other digits.

    Raises
    ------
    ValueError
        If the text is not a number of this kind.
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is not a number")
    return kind(text)


def check_one_of(name: str, value: object, known: Collection[str]) -> None:
    """Raise TypeError unless an option is a string, and ValueError unless it is known."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; expected one of {', '.join(known)}")
