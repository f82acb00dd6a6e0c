"""What can go wrong in noise and accounting, and the checks that say so on one line."""

from __future__ import annotations

from numbers import Integral, Real

SCALES = (1e-3, 2.0**40)
"""the noise scales that are accepted, in integer units: more would overflow 64 bits in a sum, less is no noise"""


class PrivacyError(ValueError):
    """A mechanism or a budget that cannot be accepted: named with its value and what is allowed."""


def require(condition: bool, message: str) -> None:
    """Raise `PrivacyError(message)` unless `condition` holds.

    >>> require(9 <= 5, "releases: 9, allowed: at most 5")
    Traceback (most recent call last):
        ...
    privacy.errors.PrivacyError: releases: 9, allowed: at most 5
    """
    if not condition:
        raise PrivacyError(message)


def is_number(value: object) -> bool:
    """Whether `value` is a real number: of Python or NumPy, no truth value, no text."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_whole(name: str, value: int, least: int, most: int) -> None:
    """Refuse what is no integer from `least` to `most`."""
    fits = isinstance(value, Integral) and not isinstance(value, bool) and least <= value <= most
    require(fits, f"{name}: {value!r}, allowed: an integer from {least} to {most}")


def check_scale(name: str, value: float) -> None:
    """Refuse what is no scale of integer noise."""
    least, most = SCALES
    require(is_number(value) and least <= value <= most, f"{name}: {value!r}, allowed: {least} to 2**40 grid units")
