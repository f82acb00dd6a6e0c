"""Who is first: one row of a setting against each of the others, seed by seed, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedgr_secure.app.tradeoff.recommend import Change, interval_words, paired
from fedgr_secure.app.tradeoff.results import Measured

_FIELD = "accuracy_last10"


@dataclass(frozen=True)
class Standing:
    """A row among the others of its setting.

    Attributes:
        name: of the row.
        ahead: by how much each other is ahead of it (below 0: behind), by name, the most first.
        apart: others that share no seed with it.
    """

    name: str
    ahead: dict[str, Change]
    apart: tuple[str, ...]

    @property
    def above(self) -> dict[str, Change]:
        """Those that are ahead, on average over the common seeds."""
        return {name: change for name, change in self.ahead.items() if change.mean > 0}

    @property
    def alike(self) -> tuple[str, ...]:
        """Those that cannot be told from it: the interval holds 0."""
        return tuple(
            name
            for name, one in self.ahead.items()
            if one.low is not None and one.high is not None and one.low <= 0 <= one.high
        )

    @property
    def single(self) -> tuple[str, ...]:
        """Those with which it has but one seed in common, so that there is no interval."""
        return tuple(name for name, change in self.ahead.items() if change.low is None)


def standing(rows: Sequence[Measured], name: str) -> Standing | None:
    """Where a row of a setting stands; None where it has no complete run.

    Args:
        rows: of one setting.
        name: of the row, such as "FedGR".
    """
    base = next((row for row in rows if row.row.name == name and row.summaries), None)
    if base is None:
        return None
    found = {row.row.name: paired(row, base, _FIELD) for row in rows if row is not base and row.summaries}
    ahead = {other: change for other, change in found.items() if change is not None}
    return Standing(
        name,
        dict(sorted(ahead.items(), key=lambda pair: -pair[1].mean)),
        tuple(other for other, change in found.items() if change is None),
    )


def standing_words(found: Standing) -> str:
    """A few sentences: its place, who is above it by how much, and who cannot be told from it."""
    said = [_place(found)]
    if found.alike:
        said.append(f"Cannot be told from it (the interval holds 0): {', '.join(found.alike)}.")
    elif found.ahead and not found.single:
        said.append("Every other can be told from it.")
    if found.single:
        who = "" if len(found.single) == len(found.ahead) else f" beside {', '.join(found.single)}"
        said.append(f"One seed{who}: what is chance cannot be told.")
    if found.apart:
        said.append(f"Not compared, for want of a common seed: {', '.join(found.apart)}.")
    return " ".join(said)


def _place(found: Standing) -> str:
    if not found.ahead:
        return f"{found.name} has nobody to be compared with."
    of = 1 + len(found.ahead)
    if not found.above:
        name, change = next(iter(found.ahead.items()))
        return f"{found.name} is first of {of}; the next is {name}: {_points(change)}."
    above = "; ".join(f"{name} {_points(change)}" for name, change in found.above.items())
    return f"{found.name} is number {1 + len(found.above)} of {of}. Above it: {above}."


def _points(change: Change) -> str:
    return f"{100 * change.mean:+.1f} points ({interval_words(change)})"
