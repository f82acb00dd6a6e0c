"""The run loop: one round after the other, to the end. Progress and reports are callbacks on the records."""

from __future__ import annotations

import hashlib
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from fedgr_secure.checks import check, oracle, sums_securely
from fedgr_secure.config import data_name, default_folder
from fedgr_secure.data.types import FederatedData, Truth
from fedgr_secure.errors import DivergedError, InputError, require
from fedgr_secure.federation.checkpoint import Belongs, Checkpoints
from fedgr_secure.federation.federation import Federation, load, prepare, set_threads
from fedgr_secure.federation.folder import RunFolder, essence
from fedgr_secure.federation.restore import restore
from fedgr_secure.records import (
    ClientRecord,
    RoundRecord,
    RoundTiming,
    Summary,
)
from fedgr_secure.registry import METHODS
from fedgr_secure.sections import Config
from fedgr_secure.wire import Weights

OnRound = Callable[[RoundRecord], None]


@dataclass(frozen=True)
class Result:
    """What a run returns.

    Attributes:
        summary: the run's figures.
        rounds: one record a round.
        weights: the final global model.
        clients: what is known of each client.
        folder: the run folder.
    """

    summary: Summary
    rounds: tuple[RoundRecord, ...]
    weights: Weights
    clients: tuple[ClientRecord, ...]
    folder: Path


def run(config: Config, *, on_round: Iterable[OnRound] = ()) -> Result:
    """Run one federation from the start and leave a run folder.

    Args:
        config: the run; `config.output.out` is the folder (default `runs/METHOD-DATA-sSEED`).
        on_round: called with every round's record, in order.

    Raises:
        InputError: a setting or a file is not acceptable, or the disk is full.
        DivergedError: training produced a non-finite number.

    An error before the end of the first round leaves nothing behind, and with `force` the run that was to be replaced
    where it was: only with the first complete round is it gone. After a later error the folder keeps the rounds before
    it, and says so. An interrupted run (Ctrl-C, kill) is always left to be resumed.
    """
    config = check(config)
    folder = RunFolder(config.output.out or default_folder(config))
    folder.check_free(force=config.output.force)
    federation = prepare(config, folder)
    found = fingerprint(federation.data, federation.evaluator.truth)
    with folder.fresh(force=config.output.force):
        folder.write_manifest(
            config,
            privacy=federation.claims(),
            threads=torch.get_num_threads(),
            parameters=sum(int(np.prod(v.shape)) for v in federation.server.state.weights.values()),
            fingerprint=found,
        )
        return _drive(federation, folder, 0, tuple(on_round))


def resume(path: Path, *, on_round: Iterable[OnRound] = ()) -> Result:
    """Continue a run that was stopped, from its last checkpoint (or from the start when there is none).

    Equal results to an uninterrupted run, bit for bit, on the same machine, versions and number of threads.

    Raises:
        InputError: not a run folder, a complete run, other data than the run started with, or a damaged checkpoint.
    """
    folder = RunFolder(path)
    manifest = folder.manifest()
    config = check(folder.config())
    require(not folder.finished, f"run folder: {path} is complete; nothing to resume")
    set_threads(manifest.threads)
    federation = prepare(config, folder)
    check_data(folder, config, federation.data, federation.evaluator.truth)
    with folder.in_use():
        return _drive(federation, folder, restore(federation, folder), tuple(on_round))


def complete(config: Config) -> Summary:
    """The summary of `config`'s run, which is read if it is complete, resumed if it was stopped, and else run.

    Raises:
        InputError: the folder holds a run of another configuration, or on other data than there are now.
    """
    folder = RunFolder(config.output.out or default_folder(config))
    if config.output.force or not folder.holds_run:
        return run(config).summary
    same = essence(folder.config()) == essence(config)
    require(same, f"out: {folder.path} holds a run of another configuration; --force replaces it")
    summary = folder.summary()
    if summary is None:
        return resume(folder.path).summary
    wanted = (config.method, data_name(config), config.seed, config.federation.rounds)
    found = (summary.method, summary.data, summary.seed, summary.rounds)
    require(
        found == wanted,
        f"out: {folder.path / 'summary.json'} is of (method, data, seed, rounds) {found}, not of {wanted}; "
        "--force replaces the run",
    )
    check_data(folder, config, *load(config))
    return summary


def check_data(folder: RunFolder, config: Config, data: FederatedData, truth: Truth) -> None:
    """Refuse data that are not those that the run in the folder started with."""
    same = fingerprint(data, truth) == folder.manifest().data_fingerprint
    place = config.data.path or config.data.dataset
    require(same, f"run folder: {folder.path} was started on other data than {place} holds now; --force replaces it")


def fingerprint(data: FederatedData, truth: Truth) -> str:
    """A hash of who owns what under which label and of up to 256 images of each set, evenly spaced.

    A resume on other data is refused by it.
    """
    digest = hashlib.sha256()
    for shard in data.shards:
        digest.update(shard.index.tobytes())
        digest.update(shard.labels.tobytes())
    digest.update(truth.test_labels.tobytes())
    for store in (data.shards[0].store, truth.test):
        rows = np.unique(np.linspace(0, len(store) - 1, 256).astype(np.int64))
        digest.update(store.take(rows).tobytes())
    return digest.hexdigest()


def rounds_done(path: Path) -> int:
    """How many rounds of a stopped run its last checkpoint holds."""
    folder = RunFolder(path)
    checkpoint = Checkpoints(folder.checkpoints, METHODS[folder.config().method].server_state).read()
    return checkpoint.rounds_done if checkpoint is not None else 0


def _drive(federation: Federation, folder: RunFolder, start: int, on_round: tuple[OnRound, ...]) -> Result:
    """Rounds from `start` to the end."""
    with _saying_what_stays(folder):
        _rounds(federation, folder, start, on_round)
        records = folder.rounds()
        summary = summarise(federation, records, folder.timings())
        clients, weights = federation.client_records(), federation.server.state.weights
        losses = federation.evaluator.loss_histogram(federation.mixture)
        folder.finish(summary, clients, losses, weights)
    return Result(summary, tuple(records), weights, clients, folder.path)


def _rounds(federation: Federation, folder: RunFolder, start: int, on_round: tuple[OnRound, ...]) -> None:
    checkpoints = Checkpoints(folder.checkpoints, federation.method.server_state)
    run, every = folder.manifest().identity(), federation.config.output.checkpoint_every
    for number in range(start, federation.config.federation.rounds):
        record, timing = federation.round(number)
        folder.append(record, timing)
        if every and (number + 1) % every == 0:
            belongs = Belongs(run, folder.digest(number + 1))
            checkpoints.write(number + 1, federation.server.state, federation.store, belongs)
            federation.forget_before(number + 1)
        for callback in on_round:
            callback(record)


@contextmanager
def _saying_what_stays(folder: RunFolder) -> Iterator[None]:
    """An error in the middle of a run says what the folder keeps."""
    try:
        yield
    except (InputError, DivergedError) as error:
        if not folder.done:
            raise
        kept = f"{folder.path} keeps the {folder.done} rounds before"
        if isinstance(error, DivergedError):
            error.add_note(kept)
            raise
        raise InputError("; ".join([str(error), *getattr(error, "__notes__", []), kept])) from error


def summarise(federation: Federation, records: list[RoundRecord], timings: list[RoundTiming]) -> Summary:
    """The figures of a complete run."""
    last, config = records[-1], federation.config
    phases: dict[str, float] = {}
    for timing in timings:
        for name, value in timing.seconds.items():
            phases[name] = phases.get(name, 0.0) + value
    return Summary(
        method=config.method,
        data=data_name(config),
        seed=config.seed,
        rounds=len(records),
        accuracy_last10=fmean(record.accuracy for record in records[-10:]),
        accuracy_best=max(record.accuracy for record in records),
        noise_rate_pearson=last.noise_rate_pearson,
        mislabel_accuracy=last.mislabel_accuracy,
        mislabel_auc=last.mislabel_auc,
        mislabel_calibration_error=last.mislabel_calibration_error,
        memorised_share=last.memorised_share,
        seconds=round(sum(phases.values()), 3),
        seconds_by_phase={name: round(value, 3) for name, value in phases.items()},
        bytes_up=sum(record.bytes_up for record in records),
        bytes_down=sum(record.bytes_down for record in records),
        client_updates=sum(record.client_updates for record in records),
        privacy=federation.claims(),
        sums_given_up=_given_up(records) if sums_securely(config) else None,
        peak_memory=_peak_memory(),
        oracle=oracle(config),
    )


def _peak_memory() -> int:
    """Bytes that this process has held at most; the system counts kibibytes, but for macOS."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _given_up(records: list[RoundRecord]) -> int:
    return sum(record.secure_sum is not None and record.secure_sum.aborted is not None for record in records)
