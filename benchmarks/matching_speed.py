"""How long it takes to look for 100,000 candidates among 10,000 rows of 30 rounds (20 clients of 500 rows each)."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import tyro

from attacks.games import Candidates
from attacks.knowledge import Knowledge, losses_of
from attacks.matching import Matcher
from attacks.observed import FLOAT32, Observed
from benchmarks.common import Options, write_result
from fedgr_secure.sections import Config

CLASSES = 10


@dataclass(frozen=True)
class Speed(Options):
    """Sizes."""

    candidates: int = 100_000
    clients: int = 20
    rows_each: int = 500
    rounds: int = 60
    participations: int = 30


def main() -> None:
    """Time one question and check that it is answered."""
    options = tyro.cli(Speed, description=__doc__)
    draw = np.random.default_rng(0)
    matcher, candidates, member = _matcher(options, draw)
    wall, cpu = time.perf_counter(), time.process_time()
    scores = matcher.any_client(candidates)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    gap = scores[member].min() - scores[~member].max()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row: dict[str, Any] = {"wall_s": wall, "cpu_s": cpu, "peak_gib": peak, "parted": bool(gap > 0)}
    table = "| wall (s) | CPU (s) | peak memory (GiB) | members and others parted |\n| ---: | ---: | ---: | --- |\n"
    table += f"| {wall:.1f} | {cpu:.1f} | {peak:.2f} | {'yes' if gap > 0 else 'no'} |"
    print(table)
    if options.record:
        size = f"{options.candidates:,} candidates, {options.clients * options.rows_each:,} rows of "
        write_result("Matching, speed", table, [row], Config(), [size + f"{options.participations} rounds."])


def _matcher(options: Speed, draw: np.random.Generator) -> tuple[Matcher, Candidates, np.ndarray]:
    references = 300
    known = np.empty((options.rounds, options.candidates + references, CLASSES), np.float32)
    for model in known:
        logits = draw.normal(0, 1, model.shape).astype(np.float32)
        model[:] = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    labels = draw.integers(0, CLASSES, options.candidates)
    drawn = [sorted(draw.choice(options.rounds, options.participations, replace=False)) for _ in range(options.clients)]
    owned = np.split(draw.permutation(options.candidates)[: options.clients * options.rows_each], options.clients)
    rows = {}
    for client, own in enumerate(owned):
        losses = losses_of(known[drawn[client]], labels[own], own)
        means = np.cumsum(losses, 0) / np.arange(1, len(losses) + 1)[:, None]
        at, scale = np.arange(len(losses)), np.full(len(losses), FLOAT32)
        rows[client] = Observed(means.astype(np.float32).astype(np.float64), at, True, scale, "gaussian", 100.0)
    knowledge = cast(Knowledge, SimpleNamespace(drawn=lambda client: drawn[client]))
    member = np.zeros(options.candidates, bool)
    member[np.concatenate(owned)] = True
    candidates = _records(np.arange(options.candidates), labels)
    outside = np.arange(options.candidates, options.candidates + references)
    matcher = Matcher(knowledge, rows, known, _records(outside, draw.integers(0, CLASSES, references)))
    return matcher, candidates, member


def _records(image: np.ndarray, labels: np.ndarray) -> Candidates:
    nothing = np.zeros(len(image), np.int64)
    return Candidates(image, labels, nothing.astype(bool), nothing, nothing)


if __name__ == "__main__":
    main()
