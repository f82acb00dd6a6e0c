"""What attacks came to, as records on disk: `attacks.json`, and the scores behind them in `attacks.npz`."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attacks.caps import advantage_cap, auc_cap, tpr_cap
from attacks.metrics import FALSE_POSITIVE_RATES, Interval, Metrics
from fedgr_secure.errors import InputError, require
from fedgr_secure.files import read_bytes, write_atomic
from fedgr_secure.typed import decode, parse_json

FILE, SCORES = "attacks.json", "attacks.npz"
SCHEMA = 2


@dataclass(frozen=True)
class Caps:
    """What a claim allows any attack on what it covers.

    Attributes:
        epsilon, delta: of the claim.
        auc, balanced_accuracy, advantage: at most.
        tpr: at each of `FALSE_POSITIVE_RATES`, at most.
    """

    epsilon: float
    delta: float
    auc: float
    balanced_accuracy: float
    advantage: float
    tpr: tuple[float, ...]

    @classmethod
    def of(cls, epsilon: float, delta: float) -> Caps:
        """Of a claim."""
        promise = {"epsilon": epsilon, "delta": delta}
        rates = tpr_cap(np.array(FALSE_POSITIVE_RATES), **promise)
        most = advantage_cap(**promise)
        tpr = tuple(float(rate) for rate in rates)
        return cls(epsilon, delta, auc_cap(**promise), (1 + most) / 2, most, tpr)


@dataclass(frozen=True)
class Outcome:
    """What an attack came to in a game.

    Attributes:
        attack, game: by name.
        question: what the game asks.
        assumes: what the attacker has beyond the view, the public plan and its own models.
        subject: what it reads, by the subject of the claim that covers it.
        metrics: for a game of yes and no; None where it is undefined.
        share: the share of right answers, for a game with many answers.
        correlation: of estimates with the truth, for an attack on clients as a whole.
        chance: what guessing comes to, or the attacker's model alone.
        caps: what the run's claim allows; None where it makes none.
    """

    attack: str
    game: str
    question: str
    assumes: str
    subject: str
    metrics: Metrics | None = None
    share: Interval | None = None
    correlation: Interval | None = None
    chance: float | None = None
    caps: Caps | None = None


@dataclass(frozen=True)
class Attacked:
    """The attacks on a run.

    Attributes:
        schema: of the file.
        seed: of candidates and bootstraps.
        outcomes: in the order of the attacks.
        seconds: wall clock.
        tried: the names of the attacks that were asked for, whether or not the run gave them something to read.
    """

    schema: int
    seed: int
    outcomes: tuple[Outcome, ...]
    seconds: float
    tried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scored:
    """The scores of an attack in a game, float64 (n,), and what was true of each, bool (n,)."""

    scores: NDArray[np.float64]
    truth: NDArray[np.bool_]


def write_results(run: Path, attacked: Attacked, scores: Mapping[str, Scored]) -> None:
    """Leave both files in a run folder; scores are named `ATTACK.GAME.scores` and `.truth`."""
    arrays = {f"{name}.scores": one.scores for name, one in scores.items()}
    arrays |= {f"{name}.truth": one.truth for name, one in scores.items()}  # type: ignore[misc]
    data = io.BytesIO()
    np.savez_compressed(data, allow_pickle=False, **arrays)
    write_atomic(run / SCORES, data.getvalue())
    write_atomic(run / FILE, json.dumps(asdict(attacked), indent=1, allow_nan=False))


def read_results(run: Path) -> Attacked | None:
    """The attacks on a run; None where there were none.

    Raises:
        InputError: the file is damaged, or of another schema.
    """
    path = run / FILE
    if not path.exists():
        return None
    table = parse_json(read_bytes(path).decode(errors="replace"), path)
    schema = table.get("schema") if isinstance(table, dict) else None
    require(schema == SCHEMA, f"{path}: schema {schema}, allowed: {SCHEMA}; remove it, and attack the run again")
    attacked: Attacked = decode(Attacked, table, str(path))
    rates = len(FALSE_POSITIVE_RATES)
    for one in attacked.outcomes:
        points = len(one.metrics.points) if one.metrics is not None else rates
        caps = len(one.caps.tpr) if one.caps is not None else rates
        counts = one.metrics is None or min(one.metrics.members, one.metrics.others) > 0
        require(
            points == caps == rates and counts,
            f"{path}: {one.attack}, {one.game}: {points} rates, allowed: {rates}, of members and others",
        )
    return attacked


def read_scores(run: Path) -> dict[str, Scored]:
    """The scores by `ATTACK.GAME`.

    Raises:
        InputError: the file is missing or damaged.
    """
    path = run / SCORES
    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as arrays:
            names = [name.removesuffix(".scores") for name in arrays.files if name.endswith(".scores")]
            found = {name: Scored(arrays[f"{name}.scores"], arrays[f"{name}.truth"]) for name in names}
    except (ValueError, KeyError, OSError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    for name, one in found.items():
        fits = one.scores.ndim == 1 and one.scores.dtype == np.float64 and one.scores.shape == one.truth.shape
        fits = fits and one.truth.dtype == np.bool_ and not np.isnan(one.scores).any()
        require(
            fits, f"{path}: {name}: {one.scores.dtype}{list(one.scores.shape)}, allowed: float64 scores with truths"
        )
    return found
