"""Audits of plans: the claimed epsilon against what an attack on the shipped channel certifies."""

from __future__ import annotations

import json

from rich.box import SIMPLE_HEAD
from rich.table import Table

from attacks.audit import LEAST_TRIALS, POWER, AuditResult, audit, draws
from fedgr_secure.app.accountant import histogram_of, noisy_of
from fedgr_secure.app.output import Output
from fedgr_secure.app.plan import Plan
from fedgr_secure.errors import InputError, require
from privacy.channels.channel import Channel
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.errors import PrivacyError
from privacy.mechanisms import SystemNoise

DRAWS = 1_500_000
"""random numbers that an audit takes by default; the operating system's exact noise comes at some 50,000 a second"""
_BINS = 256
"""of the histogram that is audited: two hold a canary, and noise in a bin does not depend on how many there are"""


def report(plan: Plan, *, trials: int, confidence: float, require_power: bool, as_json: bool) -> int:
    """Audit a plan and print the result.

    Args:
        plan: of a channel for loss proxies.
        trials: canaries to measure; 0: as many as `DRAWS` allow.
        confidence: of all bounds together.
        require_power: whether an audit without power is a failed check.
        as_json: print JSON and nothing else.

    Returns:
        The exit code: 1 if the claim is refuted, or could not be tested and had to be.

    Raises:
        InputError: something in the plan cannot be, or nothing in it can be audited.
    """
    try:
        channel = channel_of(plan)
        found = audit(channel, SystemNoise(), trials=trials or affordable(channel), confidence=confidence)
    except PrivacyError as error:
        raise InputError(str(error)) from None
    (_say_json if as_json else _say)(found, plan)
    return int(found.verdict == "FAIL" or (require_power and found.verdict == "NO POWER"))


def channel_of(plan: Plan) -> HistogramProxies | NoisyProxies:
    """The channel that clients of a run with this plan have.

    Raises:
        InputError: its claim is none of an audit's.
    """
    require(
        plan.channel != "weights",
        "channel: weights, allowed with audit: histogram or noisy (its canaries are loss proxies)",
    )
    require(plan.scale is None, f"scale: {plan.scale}, allowed with audit: epsilon (a claim is an epsilon)")
    return noisy_of(plan) if plan.channel == "noisy" else histogram_of(plan, bins=_BINS)


def affordable(channel: Channel, *, limit: int = DRAWS) -> int:
    """As many canaries as a number of random draws allows.

    Raises:
        InputError: they are too few for an audit.
    """
    unit = 1000
    fitting = limit * unit // draws(channel, unit)
    needed = draws(channel, LEAST_TRIALS)
    require(
        fitting >= LEAST_TRIALS,
        f"trials: none given, allowed with this plan: a number ({LEAST_TRIALS} canaries need {needed:,} random numbers "
        f"from the operating system, some {needed // 50_000:,} seconds)",
    )
    return fitting


def _say(found: AuditResult, plan: Plan) -> None:
    console, claim = Output(), found.claim
    console.say(str(claim))
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for name in ("Method", "Certified epsilon", "Of the claim", "How"):
        table.add_column(name, justify="left" if name in ("Method", "How") else "right")
    for bound in found.bounds:
        table.add_row(bound.method, f"{bound.epsilon:.3g}", f"{bound.epsilon / found.claimed:.0%}", bound.how)
    console.print(table)
    console.say(
        f"{found.trials:,} canaries, {found.play}; all bounds hold together with confidence {found.confidence:g}; "
        f"{found.seconds:.0f} s"
    )
    console.say(f"{found.verdict}: {_words(found)}")


def _words(found: AuditResult) -> str:
    """What a verdict means."""
    best, claimed = found.best, _claimed(found)
    if not found.integers:
        return f"uploads hold {', '.join(found.dtypes)}, allowed: integers (rounding gives away what noise hides)"
    if found.verdict == "FAIL" and best.epsilon <= found.claimed:
        return "uploads past the budget's releases tell what a record is, allowed: nothing new of it"
    if found.verdict == "FAIL":
        return (
            f"epsilon is at least {best.epsilon:.3g} ({best.method}), {claimed}. Of sound channels at most "
            f"{1 - found.confidence:.0%} fail an audit: run it again to be sure"
        )
    if found.verdict == "PASS":
        return f"epsilon is at least {best.epsilon:.3g} ({best.method}); nothing refutes {claimed}"
    return (
        f"epsilon is at least {best.epsilon:.3g} ({best.method}), below {POWER:g} of {claimed}: a claim that is too "
        "low might not have shown; more --trials would tell more"
    )


def _claimed(found: AuditResult) -> str:
    """The claim in words; what the ledger charges where it is less."""
    claimed = found.claim.epsilon or 0.0
    words = f"the claimed {claimed:g}"
    return words if found.claimed > 0.999 * claimed else f"the {found.accounted:.3g} that is charged ({words})"


def _say_json(found: AuditResult, plan: Plan) -> None:
    said = {
        "verdict": found.verdict,
        "channel": plan.channel,
        "adjacency": plan.adjacency,
        "epsilon": found.claim.epsilon,
        "delta": found.claim.delta,
        "accounted": found.accounted,
        "certified": {bound.method: bound.epsilon for bound in found.bounds},
        "play": found.play,
        "trials": found.trials,
        "integers": found.integers,
        "past_the_budget": found.past,
        "confidence": found.confidence,
        "seconds": found.seconds,
    }
    Output().say(json.dumps(said))
