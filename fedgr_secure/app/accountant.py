"""Answers about plans of releases: the noise of an epsilon, the epsilon of a noise."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedgr_secure.app.output import Output
from fedgr_secure.app.plan import Plan
from fedgr_secure.errors import InputError, require
from privacy.budget import Budget, Schedule
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.dpsgd import DPSGD, plan_dpsgd
from privacy.errors import PrivacyError
from privacy.mechanisms import Grid

_ANY = 1.0
"""an epsilon for channels that are asked about a noise, and not about their own"""
_MOST_ROWS = 12


@dataclass(frozen=True)
class Answer:
    """What a plan needs and costs.

    Attributes:
        scale: of the noise, in the unit of the plan: counts (the honest shares together) or nats; the first release's.
        share: of one client in that, in counts; None for rows.
        epsilons: by number of releases of one client (a dozen of many), at the plan's delta (0 for Laplace).
    """

    scale: float
    share: float | None
    epsilons: dict[int, float]


def account(plan: Plan) -> Answer:
    """The answer to a plan.

    Raises:
        InputError: both epsilon and scale are given, or something in the plan cannot be.
    """
    require(plan.epsilon is None or plan.scale is None, "epsilon and scale: both given, allowed: one of them")
    require(
        plan.scale is None or (math.isfinite(plan.scale) and plan.scale > 0),
        f"scale: {plan.scale}, allowed: a finite number above 0",
    )
    try:
        return {"histogram": _histogram, "noisy": _noisy, "weights": _weights}[plan.channel](plan)
    except PrivacyError as error:
        raise InputError(str(error)) from None


def _budget(plan: Plan, releases: int) -> Budget:
    epsilon = plan.epsilon if plan.epsilon is not None else _ANY
    return Budget(epsilon, plan.delta, releases, plan.adjacency, plan.records, plan.largest)


def histogram_of(plan: Plan, *, bins: int = 1) -> HistogramProxies:
    """The channel of a plan, with bins of equal width."""
    require(plan.honest >= 1, f"honest: {plan.honest}, allowed: a whole number from 1")
    edges = tuple(at / bins for at in range(bins + 1))
    return HistogramProxies(_budget(plan, plan.releases), edges, plan.honest, Schedule(0, 0, 1))


def noisy_of(plan: Plan) -> NoisyProxies:
    """The channel of a plan; once takes one release."""
    releases = 1 if plan.noising == "once" else plan.releases
    grid = Grid(plan.clip, plan.grid_steps)
    return NoisyProxies(_budget(plan, releases), grid, plan.noising, plan.mechanism, Schedule(0, 0, 1))


def _histogram(plan: Plan) -> Answer:
    channel = histogram_of(plan)
    share = channel.sigma if plan.scale is None else plan.scale / math.sqrt(plan.honest)
    spent = {done: channel.epsilon_of(share, done) for done in _shown(plan.releases)}
    return Answer(share * math.sqrt(plan.honest), share, spent)


def _noisy(plan: Plan) -> Answer:
    channel = noisy_of(plan)
    releases, grid = channel.budget.releases, channel.grid
    if plan.scale is None:
        spent = {done: channel.spent(done) or math.nan for done in _shown(releases)}
        return Answer(channel.noises[0].scale * grid.step, None, spent)
    require(plan.noising != "diagonal", "scale: given, allowed with the plan diagonal: epsilon (its noise is uneven)")
    steps = plan.scale / grid.step
    return Answer(plan.scale, None, {done: channel.epsilon_of(steps, done) for done in _shown(releases)})


def _weights(plan: Plan) -> Answer:
    require(
        plan.adjacency in ("replace-one", "label"),
        f"adjacency: {plan.adjacency}, allowed with channel weights: replace-one or label",
    )
    _ = _budget(plan, plan.releases)  # refuses what no budget can be
    made = (
        plan_dpsgd(plan.epsilon or _ANY, plan.delta, rate=plan.rate, steps=plan.steps, trainings=plan.releases)
        if plan.scale is None
        else DPSGD(plan.rate, plan.steps, plan.releases, plan.scale, plan.delta)
    )
    return Answer(made.noise_multiplier, None, {done: made.spent(done) for done in _shown(plan.releases)})


def answer(plan: Plan, *, as_json: bool) -> None:
    """Print the answer to a plan."""
    found = account(plan)
    pure = plan.channel == "noisy" and plan.mechanism == "laplace"
    delta = 0.0 if pure else plan.delta
    console = Output()
    if as_json:
        said: dict[str, Any] = {"channel": plan.channel, "adjacency": plan.adjacency, "delta": delta}
        console.say(json.dumps(said | {"scale": found.scale, "share": found.share, "epsilon": found.epsilons}))
        return
    unit = {"noisy": "nats", "histogram": "counts", "weights": "times the clip of a gradient"}[plan.channel]
    share = "" if found.share is None else f" ({found.share:.4g} from each of {plan.honest} honest clients)"
    console.say(f"{plan.channel}, {plan.adjacency}: noise of scale {found.scale:.4g} {unit}{share}")
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("Releases of a client", justify="right")
    table.add_column(f"epsilon at delta {delta:g}", justify="right")
    for done, epsilon in found.epsilons.items():
        table.add_row(str(done), f"{epsilon:.4g}")
    console.print(table)
    amplified = "Only the client's own Poisson sampling amplifies" if plan.channel == "weights" else "Nothing amplifies"
    console.say(f"{amplified}: the server chooses the cohorts. Runs on the same data add up.")


def _shown(releases: int) -> list[int]:
    """Every number of releases, or a dozen of many; the last always."""
    every = -(-releases // _MOST_ROWS)
    return sorted({*range(1, releases + 1, every), releases})
