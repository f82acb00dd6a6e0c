"""All attacks on one run: games are played, attacks score them, and what comes out is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attacks.arena import Arena, arena
from attacks.games import (
    LABEL,
    MISLABEL,
    SOURCE,
    AnyClient,
    Candidates,
    Game,
    MembersOnly,
    RowLinkage,
    TargetClient,
)
from attacks.knowledge import Knowledge
from attacks.lira import label_column, lira_offline, lira_online, logit_confidence
from attacks.loss_series import loss_trend
from attacks.loss_threshold import loss_threshold
from attacks.metrics import correlation, evaluate, share
from attacks.per_client import ClientReader
from attacks.rates import classes_of_rows, level_of_rows, rates_of_counts, rates_of_rows
from attacks.results import SCHEMA, Attacked, Caps, Outcome, Scored
from attacks.rmia import Population, rmia_offline, rmia_online
from fedgr_secure.errors import nearest, require

Scores = NDArray[np.float64]
Played = list[tuple[Outcome, Scored]]
Rounds = Sequence[tuple[Game, Callable[[Candidates], Scores]]]


@dataclass(frozen=True)
class Attack:
    """An attack as the harness knows it.

    Attributes:
        name: as on the command line.
        source: who described it.
        fits: whether the run gives it anything to read.
        play: its outcomes without caps, each with the scores behind it.
    """

    name: str
    source: str
    fits: Callable[[Arena], bool]
    play: Callable[[Arena], Played]


_REFERENCES = "records of the same distribution"
_SHADOWS = "the candidates to train shadow federations on, and records of the same distribution"
LIST = "a list that has every record of the group, and records of the same distribution"
"""what `subsets` is given beyond `means`"""
_PROXIES, _WEIGHTS = "loss proxies", "model weights"


def _membership(name: str, subject: str, arena: Arena, played: Rounds, *, assumes: str = _REFERENCES) -> Played:
    """Games of yes and no."""
    found = []
    for game, score in played:
        candidates = arena.candidates(game)
        scores = score(candidates)
        metrics = evaluate(scores, candidates.member, seed=arena.seed)
        outcome = Outcome(name, game.name, game.says, assumes, subject, metrics)
        found.append((outcome, Scored(scores, candidates.member)))
    return found


def _matching(arena: Arena) -> Played:
    matcher = arena.matcher()
    games: Rounds = [
        (AnyClient(), matcher.any_client),
        (TargetClient(), matcher.named_client),
        (RowLinkage(), matcher.named_row),
    ]
    return _membership("matching", _PROXIES, arena, games)


def _histogram(arena: Arena) -> Played:
    games: Rounds = [(AnyClient(), arena.counts.any_client), (TargetClient(), arena.counts.named_client)]
    return _membership("histogram", _PROXIES, arena, games)


def _means(arena: Arena) -> Played:
    return _client_by_client("means", arena.means, arena, arena.knowledge.said.subject or "", _REFERENCES)


def _subsets(arena: Arena) -> Played:
    """Without the games in which no subset could be listed, or none fitted: there it says what `means` does."""
    usual = {outcome.game: scored.scores for outcome, scored in _means(arena)}
    played = _client_by_client("subsets", arena.subsets, arena, arena.knowledge.said.subject or "", LIST)
    return [(one, scored) for one, scored in played if not np.array_equal(scored.scores, usual[one.game])]


def _local(arena: Arena) -> Played:
    return _client_by_client("local", arena.local_models, arena, _WEIGHTS, "nothing")


def _sureness(arena: Arena) -> Played:
    return _client_by_client("sureness", arena.sure_models, arena, _WEIGHTS, "nothing")


def _client_by_client(name: str, reader: ClientReader, arena: Arena, subject: str, assumes: str) -> Played:
    games: Rounds = [(AnyClient(), reader.any_client), (TargetClient(), reader.named_client)]
    source = _answers(*_whose(arena, reader), name=name, subject=subject, assumes=assumes)
    return _membership(name, subject, arena, games, assumes=assumes) + source


def _threshold(arena: Arena) -> Played:
    games: Rounds = [(AnyClient(), lambda candidates: loss_threshold(arena.losses(candidates)))]
    return _membership("threshold", _WEIGHTS, arena, games, assumes="nothing")


def _series(arena: Arena) -> Played:
    """The trend stands for the series: it is blind to how hard a record is."""
    games: Rounds = [(AnyClient(), lambda candidates: loss_trend(arena.losses(candidates)))]
    return _membership("series", _WEIGHTS, arena, games, assumes="nothing")


def _lira(name: str, score: Callable[..., Scores], arena: Arena) -> Played:
    shadowed, images = arena.shadowed, arena.candidates(AnyClient()).image
    own = arena.known[-1, images].astype(np.float64)
    games: Rounds = [
        (
            AnyClient(),
            lambda candidates: score(
                logit_confidence(own, candidates.labels),
                logit_confidence(shadowed.candidates, candidates.labels),
                shadowed.inside,
            ),
        )
    ]
    return _membership(name, _WEIGHTS, arena, games, assumes=_SHADOWS)


def _rmia(name: str, score: Callable[..., Scores], arena: Arena) -> Played:
    references, shadowed = arena.references, arena.shadowed
    points = Population(
        np.exp(-arena.losses(references)[-1]), np.exp(label_column(shadowed.population, references.labels))
    )
    games: Rounds = [
        (
            AnyClient(),
            lambda candidates: score(
                np.exp(-arena.losses(candidates)[-1]),
                np.exp(label_column(shadowed.candidates, candidates.labels)),
                shadowed.inside,
                points,
            ),
        )
    ]
    return _membership(name, _WEIGHTS, arena, games, assumes=_SHADOWS)


def _answers(
    game: MembersOnly,
    right: NDArray[np.bool_],
    chance: float,
    *,
    name: str | None = None,
    subject: str = _PROXIES,
    assumes: str = _REFERENCES,
) -> Played:
    """A game with many answers: the scores say which were right."""
    outcome = Outcome(name or game.name, game.name, game.says, assumes, subject, share=share(right), chance=chance)
    return [(outcome, Scored(right.astype(np.float64), np.ones(len(right), bool)))]


def _whose(arena: Arena, reader: ClientReader) -> tuple[MembersOnly, NDArray[np.bool_], float]:
    """Whose record it is, as a reader says it; by chance, the largest client's."""
    members, sizes = arena.candidates(SOURCE), np.asarray(arena.knowledge.sizes)
    return SOURCE, reader.source(members) == members.client, float(sizes.max() / sizes.sum())


def _source(arena: Arena) -> Played:
    return _answers(*_whose(arena, arena.matcher()))


def _label(arena: Arena) -> Played:
    """Chance is what the final model alone says."""
    members = arena.candidates(LABEL)
    alone = arena.known[-1, members.image].argmax(1) == members.labels
    return _answers(LABEL, arena.matcher().label(members) == members.labels, float(alone.mean()))


def _mislabel(arena: Arena) -> Played:
    members, wrong = arena.candidates(MISLABEL), arena.challenger.wrong
    scores = np.zeros(len(members))
    for client, observed in arena.knowledge.observed.items():
        asked = np.flatnonzero(members.client == client)
        scores[asked] = level_of_rows(observed)[members.row[asked]]
    metrics = evaluate(scores, wrong, seed=arena.seed)
    outcome = Outcome(MISLABEL.name, MISLABEL.name, MISLABEL.says, "nothing", _PROXIES, metrics)
    return [(outcome, Scored(scores, wrong))]


def _clients(
    name: str, question: str, estimates: Scores, truth: Scores, *, by: str | None = None, subject: str = _PROXIES
) -> Played:
    """An attack on clients as a whole, of which there may be several, each by something else."""
    found = correlation(estimates, truth)
    outcome = Outcome(name, by or name, question, _REFERENCES, subject, correlation=found, chance=0.0)
    return [(outcome, Scored(estimates, np.isfinite(truth)))]


def _rates(arena: Arena) -> Played:
    knowledge, said = arena.knowledge, arena.knowledge.said
    found = {(name, said.subject or ""): dict(of) for name, of in said.noisiness.items()}
    if arena.has_rows:
        found["rates", _PROXIES] = rates_of_rows(knowledge.observed, _middle(arena))
    elif arena.has_counts:
        found["rates", _PROXIES] = rates_of_counts(knowledge, np.asarray(arena.counts.channel.edges), _middle(arena))
    return [one for (by, subject), of in found.items() for one in _rate(arena, of, by, subject)]


def _rate(arena: Arena, found: Mapping[int, float], by: str, subject: str) -> Played:
    """One estimate of the clients' rates."""
    clients, question = sorted(found), "how many of a client's labels are wrong?"
    truth, estimates = arena.challenger.truth.realised_rate[clients], np.array([found[k] for k in clients])
    return _clients("rates", question, estimates, truth, by=by, subject=subject)


def _middle(arena: Arena) -> float:
    """Nats; where wrong labels part from right ones: half way between the newest mixture's means, or one nat."""
    mixture = arena.knowledge.mixture
    return sum(mixture.means) / 2 if mixture is not None else 1.0


def _classes(arena: Arena) -> Played:
    knowledge, classes = arena.knowledge, arena.knowledge.classes
    found, subject = knowledge.said.classes, knowledge.said.subject or ""
    if arena.has_rows:
        found, subject = classes_of_rows(knowledge, knowledge.observed, arena.known, arena.references), _PROXIES
    shards = arena.challenger.data.shards
    truth = np.concatenate([np.bincount(shards[k].labels, minlength=classes) / len(shards[k]) for k in sorted(found)])
    estimates = np.concatenate([found[k] for k in sorted(found)])
    return _clients("classes", "which share of a client's records has each label?", estimates, truth, subject=subject)


ATTACKS = (
    Attack("matching", "record linkage by running means or likelihood ratios", lambda a: a.has_rows, _matching),
    Attack("histogram", "likelihood ratio of one count", lambda a: a.has_counts, _histogram),
    Attack("source", "after Hu et al. 2021", lambda a: a.has_rows, _source),
    Attack("label", "matching under every label", lambda a: a.has_rows, _label),
    Attack("mislabel", "the level of a row", lambda a: a.has_rows, _mislabel),
    Attack(
        "rates",
        "rows, or sums of changing cohorts (after Kerkouche et al. 2023)",
        lambda a: a.has_rows or a.has_counts or bool(a.knowledge.said.noisiness),
        _rates,
    ),
    Attack("means", "after Homer et al. 2008", lambda a: bool(a.knowledge.said.means), _means),
    Attack(
        "subsets",
        "exact sums (Dinur and Nissim 2003), met in the middle",
        lambda a: bool(a.knowledge.said.means) and a.subsets.reads,
        _subsets,
    ),
    Attack("local", "after Nasr et al. 2019", lambda a: bool(a.knowledge.trained), _local),
    Attack("sureness", "after Salem et al. 2019: blind to labels", lambda a: bool(a.knowledge.trained), _sureness),
    Attack("threshold", "Yeom et al. 2018: the loss under the final model", lambda a: True, _threshold),
    Attack("series", "the trend of the loss over the rounds", lambda a: True, _series),
    *(
        Attack(name, source, lambda a: a.shadows > 0, partial(play, name, score))
        for name, source, play, score in (
            ("lira", "Carlini et al. 2022, online, with shadow federations", _lira, lira_online),
            ("lira-offline", "the same without shadows of members", _lira, lira_offline),
            ("rmia", "Zarifzadeh et al. 2024, online, with shadow federations", _rmia, rmia_online),
            ("rmia-offline", "the same without shadows of members", _rmia, rmia_offline),
        )
    ),
    Attack("classes", "after Wang et al. 2019", lambda a: a.has_rows or bool(a.knowledge.said.classes), _classes),
)


USUAL = tuple(attack.name for attack in ATTACKS if attack.name not in ("lira", "lira-offline", "rmia", "rmia-offline"))
"""the names of those that need no shadow federations"""


def chosen(names: Sequence[str]) -> tuple[Attack, ...]:
    """The attacks of these names; all for none.

    Raises:
        InputError: an unknown name.
    """
    known = {attack.name: attack for attack in ATTACKS}
    for name in names:
        require(name in known, f"attacks: unknown {name!r}{nearest(name, known)}; attacks: {', '.join(known)}")
    return tuple(known[name] for name in names) if names else ATTACKS


def attack(
    run: Path, names: Sequence[str] = (), *, seed: int = 0, shadows: int = 0
) -> tuple[Attacked, dict[str, Scored]]:
    """Carry the attacks out that a finished run gives something to read; the rest is left out.

    Args:
        run: the run folder, with a recorded view.
        names: of attacks; all for none.
        seed: of candidates and bootstraps.
        shadows: how many shadow federations to train, each about as long as the run; 0: none.

    Raises:
        InputError: no such attack, no finished run, nothing recorded, or nothing that the attacks can read.
    """
    started = time.perf_counter()
    attacks, ground = chosen(names), arena(run, seed=seed, shadows=shadows)
    played = [one for attack in attacks if attack.fits(ground) for one in attack.play(ground)]
    outcomes = tuple(_capped(outcome, ground.knowledge) for outcome, _ in played)
    scores = {f"{outcome.attack}.{outcome.game}": scored for outcome, scored in played}
    require(bool(outcomes), f"run folder: {run} shows nothing that {', '.join(a.name for a in attacks)} can read")
    tried = tuple(attack.name for attack in attacks if shadows > 0 or attack.name in USUAL)
    return Attacked(SCHEMA, seed, outcomes, round(time.perf_counter() - started, 3), tried), scores


def _capped(outcome: Outcome, knowledge: Knowledge) -> Outcome:
    """With what the claim about its subject allows. Membership and rows alone are what the claim is about."""
    claim = knowledge.claim(outcome.subject)
    if outcome.metrics is None or claim is None or claim.epsilon is None or claim.delta is None:
        return outcome
    return replace(outcome, caps=Caps.of(claim.epsilon, claim.delta))
