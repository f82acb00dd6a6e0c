"""The results of a grid as one tidy table: a row per setting and series, columns that say what they are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from attacks.metrics import Interval
from fedgr_secure.app.tradeoff.results import Leak, Measured, Spread
from fedgr_secure.checks import sums_securely

Value = str | float | int | None
_SUBJECTS = {
    "attack": (None, "of everything that the server sees"),
    "proxies_attack": ("loss proxies", "of those that read loss proxies"),
    "models_attack": ("model weights", "of those that read the models alone"),
}


_ENDS = {"": "as measured", "_low": "lower end of the 95 % interval", "_high": "upper end of the 95 % interval"}


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: in the files.
        unit: such as "share" or "bytes"; "" for words.
        meaning: in a sentence.
        of: its value in a row; None where it does not apply.
    """

    name: str
    unit: str
    meaning: str
    of: Callable[[Measured], Value]


@dataclass(frozen=True)
class Measure:
    """A field of a run's summary, which becomes three columns: mean, sd and n."""

    field: str
    unit: str
    meaning: str


MEASURES = (
    Measure("accuracy_last10", "share", "test accuracy, mean of a run's last ten rounds"),
    Measure("accuracy_best", "share", "test accuracy of a run's best round"),
    Measure("noise_rate_pearson", "correlation", "estimated against true noise rates of the clients, after the run"),
    Measure("mislabel_accuracy", "share", "clean-or-wrong verdicts that are right"),
    Measure("mislabel_auc", "area", "ROC of P(wrong) against wrong labels"),
    Measure("mislabel_calibration_error", "share", "expected calibration error of P(wrong), 15 bins"),
    Measure("memorised_share", "share", "wrong labels that the final model repeats"),
    Measure("bytes_up", "bytes", "sent by all clients"),
    Measure("bytes_down", "bytes", "sent by the server"),
    Measure("client_updates", "count", "local trainings"),
    Measure("seconds", "s", "wall time of the rounds, as this machine was"),
    Measure("peak_memory", "bytes", "most memory that the run's process held"),
    Measure("sums_given_up", "count", "rounds whose secure sum had too few clients"),
)
VARYING = ("seconds", "peak_memory")
"""measures that differ from one time to the next, whatever repeats"""


def columns(rows: Sequence[Measured]) -> tuple[Column, ...]:
    """Every column of these rows; phases are those that any run had."""
    phases = dict.fromkeys(name for row in rows for summary in row.summaries for name in summary.seconds_by_phase)
    return (
        *_what(),
        *(column for measure in MEASURES for column in _spread(measure)),
        *map(_phase, phases),
        *_claims(),
        *(column for prefix in _SUBJECTS for column in _leak(prefix)),
        *_audit(),
    )


def _what() -> Iterator[Column]:
    yield Column("setting", "", "data, noise and partition, as the grid calls them", lambda m: m.row.setting)
    yield Column("series", "", "method and channel, as the grid calls them", lambda m: m.row.series)
    yield Column("row", "", "the series with its values on the axes", lambda m: m.row.name)
    plain: dict[str, tuple[str, Callable[[Measured], Value]]] = {
        "method": ("the method", lambda m: m.row.config.method),
        "channel": ("how loss proxies travel", lambda m: _channel(m)),
        "secagg": ("whether weights travel under secure sums", lambda m: str(sums_securely(m.row.config)).lower()),
        "dataset": ("the data", lambda m: m.row.config.data.dataset),
        "label_noise": ("type of label noise", lambda m: m.row.config.noise.label_noise),
        "partition": ("who owns what", lambda m: m.row.config.partition.partition),
    }
    for name, (meaning, of) in plain.items():
        yield Column(name, "", meaning, of)
    yield Column("oracle", "", "what the method was told that nobody could know; empty: nothing", lambda m: m.oracle)
    yield Column("rho_min", "share", "lowest noise rate of a noisy client", lambda m: _rate(m, "rho_min"))
    yield Column("rho_max", "share", "highest noise rate of a noisy client", lambda m: _rate(m, "rho_max"))
    yield Column("seeds", "", "of the complete runs", lambda m: " ".join(str(s.seed) for s in m.summaries))
    yield Column("runs", "count", "complete runs", lambda m: len(m.summaries))
    yield Column("missing", "", "seeds of runs that are not complete", lambda m: " ".join(map(str, m.failed)))


def _rate(measured: Measured, name: str) -> float | None:
    noise = measured.row.config.noise
    return getattr(noise, name) if noise.label_noise in ("symmetric", "asymmetric", "mixed") else None


def _channel(measured: Measured) -> str | None:
    config = measured.row.config
    return config.proxies.channel if config.method == "fedgr" and config.fedgr.sieve else None


def _spread(measure: Measure) -> Iterator[Column]:
    parts = {"mean": "mean over runs", "sd": "sample standard deviation over runs", "n": "runs in which it applies"}
    for part, words in parts.items():

        def of(measured: Measured, part: str = part) -> Value:
            spread: Spread | None = measured.measure(measure.field)
            return getattr(spread, part) if spread is not None else (0 if part == "n" else None)

        unit = "count" if part == "n" else measure.unit
        yield Column(f"{measure.field}_{part}", unit, f"{measure.meaning}: {words}", of)


def _phase(name: str) -> Column:
    def of(measured: Measured) -> Value:
        spread = measured.phase(name)
        return spread.mean if spread is not None else None

    return Column(f"seconds_{name.replace(': ', '_').replace(' ', '_')}", "s", f"wall time in the phase {name!r}", of)


def _claims() -> Iterator[Column]:
    parts = {
        "epsilon": "the claimed bound, of all releases together",
        "delta": "its failure probability",
        "adjacency": "which inputs are neighbours",
        "mechanism": "the noise",
        "sampling": "what is assumed of sampling",
    }
    for prefix, subject in (("proxies", "loss proxies"), ("weights", "model weights"), ("run", "whole run")):
        for part, words in parts.items():

            def of(measured: Measured, subject: str = subject, part: str = part) -> Value:
                claim = measured.claim(subject)
                value: Value = getattr(claim, part) if claim is not None else None
                return value

            unit = "nats" if part == "epsilon" else ""
            yield Column(f"{prefix}_{part}", unit, f"claim on the {subject}: {words}; empty without one", of)


def _leak(prefix: str) -> Iterator[Column]:
    subject, which = _SUBJECTS[prefix]

    def column(name: str, unit: str, meaning: str, of: Callable[[Leak], Value]) -> Column:
        def value(measured: Measured) -> Value:
            leak = measured.strongest(subject)
            return of(leak) if leak is not None else None

        return Column(f"{prefix}_{name}".replace("attack_name", "attack"), unit, meaning, value)

    yield column("name", "", f"the strongest membership attack (by area, in hindsight) {which}", lambda k: k.attack)
    yield column("game", "", "its game: any, target or row", lambda k: k.game)
    yield column("members", "count", "candidates that are members, all runs together", lambda k: k.metrics.members)
    yield column("others", "count", "candidates that are none", lambda k: k.metrics.others)
    for end, words in _ENDS.items():
        yield column(f"auc{end}", "area", f"under its ROC, {words}", partial(_auc, end=end))
    yield column("auc_allowed", "area", "most that the claim allows", lambda k: k.caps.auc if k.caps else None)
    for name, rate in (("tpr_at_0_01", 0.01), ("tpr_at_0_001", 0.001)):
        for end, words in _ENDS.items():
            meaning = f"members found at {100 * rate:g} % false positives, {words}; empty: too few others to tell"
            yield column(f"{name}{end}", "share", meaning, partial(_tpr, rate=rate, end=end))


def _auc(leak: Leak, *, end: str) -> Value:
    return _part(leak.metrics.auc, end)


def _tpr(leak: Leak, *, rate: float, end: str) -> Value:
    return _part(leak.tpr_interval(rate), end)


def _part(interval: Interval | None, end: str) -> Value:
    """The value of an interval, or one of its ends."""
    value: float | None = getattr(interval, end.removeprefix("_") or "value") if interval is not None else None
    return value


def _audit() -> Iterator[Column]:
    def column(name: str, field: str, unit: str, meaning: str) -> Column:
        def of(measured: Measured) -> Value:
            value: Value = getattr(measured.certified, field) if measured.certified is not None else None
            return value

        return Column(name, unit, meaning, of)

    yield column("certified_epsilon", "epsilon", "nats", "lower bound that an audit of the plan certifies")
    yield column("audited_epsilon", "claimed", "nats", "what was audited: the smaller of claim and ledger")
    yield column("audit_verdict", "verdict", "", "FAIL: refuted; NO POWER: less than 0.6 of it could be certified")
    yield column("audit_method", "method", "", "which bound is the best")
    yield column("audit_trials", "trials", "count", "canaries")
    yield column("audit_confidence", "confidence", "share", "that the bound is below the truth")


def records(rows: Sequence[Measured]) -> list[dict[str, Value]]:
    """The table as plain values: shares, bytes, seconds, nats."""
    found = columns(rows)
    return [{column.name: column.of(row) for column in found} for row in rows]


def as_csv(records: Sequence[Mapping[str, Value]]) -> str:
    """With a heading; empty where a value does not apply."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_json_lines(records: Sequence[Mapping[str, Any]]) -> str:
    """A line per row; null where a value does not apply."""
    return "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)


def dictionary(rows: Sequence[Measured]) -> str:
    """What each column is, as CSV: column, unit, meaning."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("column", "unit", "meaning"))
    writer.writerows((column.name, column.unit, column.meaning) for column in columns(rows))
    return text.getvalue()
