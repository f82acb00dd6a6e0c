"""What a setting may be, as it stands in its type. Imports neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Bound:
    """What a number of the configuration may be; stands in the field's type."""

    words: str
    holds: Callable[[float], bool]


Share = Annotated[float, Bound("from 0 to 1", lambda x: 0 <= x <= 1)]
BelowOne = Annotated[float, Bound("from 0 to below 1", lambda x: 0 <= x < 1)]
Positive = Annotated[float, Bound("a finite number above 0, at most 3e38 (32 bits)", lambda x: 0 < x <= 3e38)]
FromZero = Annotated[float, Bound("a finite number from 0 to 3e38 (32 bits)", lambda x: 0 <= x <= 3e38)]


def whole(low: int, high: int, why: str) -> Bound:
    """Whole numbers between two limits, and why there is an upper one.

    >>> whole(1, 9, "one digit").words, whole(1, 9, "one digit").holds(10)
    ('a whole number from 1 to 9 (one digit)', False)
    """
    return Bound(f"a whole number from {low} to {high} ({why})", lambda x: type(x) is int and low <= x <= high)


Seed = Annotated[int, whole(0, 2**63 - 1, "64 bits with a sign")]
Images = Annotated[int, whole(1, 10**9, "more than any data set holds")]
Clients = Annotated[int, whole(1, 10**6, "each keeps a state of its own")]
Rounds = Annotated[int, whole(1, 10**6, "more would run for years")]
RoundsFromZero = Annotated[int, whole(0, 10**6, "no run has more rounds")]
Epochs = Annotated[int, whole(1, 10**4, "more would run for years")]
Width = Annotated[int, whole(1, 1024, "the model grows with its square")]
Operations = Annotated[int, whole(0, 14, "there are 14 operations")]
Padding = Annotated[int, whole(0, 4095, "less than any image's side")]
Side = Annotated[int, whole(8, 1024, "an image is held in memory as it is")]
Colluders = Annotated[int, whole(0, 10**6, "there are no more clients")]
Releases = Annotated[int, whole(1, 10**4, "the budget is shared among them")]
Bins = Annotated[int, whole(2, 4096, "each has noise of its own; a mixture cannot be fitted to one")]
Steps = Annotated[int, whole(16, 2**20, "noise is drawn in whole steps")]
Threads = Annotated[int, whole(1, 1024, "more than any machine has cores")]

UNSET = tyro.conf.arg(help_behavior_hint=lambda default: "" if default == "None" else f"(default: {default})")
"""Stands in the type of a setting whose None has a meaning, which its own help text names."""
