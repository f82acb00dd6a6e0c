"""The errors a user can meet. Each message names the thing, its value and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user supplied (a setting, a file, an array) is not acceptable. The command line exits with 2."""


class DivergedError(ArithmeticError):
    """Training produced a non-finite number; nothing of that round was averaged into the model."""


class CheckpointError(InputError):
    """A checkpoint is missing, damaged, or written by a schema that this version does not read."""


def require(condition: bool, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds.

    >>> require(3 <= 5, "cohort: 3, allowed: at most 5 clients")
    >>> require(9 <= 5, "cohort: 9, allowed: at most 5 clients")
    Traceback (most recent call last):
        ...
    fedgr_secure.errors.InputError: cohort: 9, allowed: at most 5 clients
    """
    if not condition:
        raise InputError(message)


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint naming the known word closest to a mistyped one, or an empty string.

    >>> nearest("rouns", ["rounds", "clients"])
    ' (did you mean rounds?)'
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
