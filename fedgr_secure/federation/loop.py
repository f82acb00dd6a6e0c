"""The run loop: prepare, one round after the other, finish. Progress and reports are callbacks on the records."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedgr_secure.config import Config, check, data_name, default_folder
from fedgr_secure.context import ClientContext, Method, ServerContext, ServerHalf
from fedgr_secure.data.federated import federate
from fedgr_secure.data.sources import load_source
from fedgr_secure.data.types import FederatedData, Truth
from fedgr_secure.data.views import Views
from fedgr_secure.errors import DivergedError, InputError, require
from fedgr_secure.federation.checkpoint import Belongs, Checkpoints
from fedgr_secure.federation.cohort import Cohort, cohort_sizes, draw_cohort, draw_dropouts
from fedgr_secure.federation.evaluate import Evaluator
from fedgr_secure.federation.folder import MOST_THREADS, RunFolder, essence
from fedgr_secure.federation.restore import restore
from fedgr_secure.federation.runner import ClientRunner, DebugRunner, SequentialRunner
from fedgr_secure.federation.secure import SecureAggregation
from fedgr_secure.federation.store import ClientStore, DiskStore, MemoryStore, StateFolder
from fedgr_secure.federation.sums import SecureSums
from fedgr_secure.federation.view import ViewRecorder
from fedgr_secure.method.sieve import Mixture
from fedgr_secure.models import build_model
from fedgr_secure.randomness import Randomness
from fedgr_secure.records import (
    ClientRecord,
    MixtureRecord,
    RoundRecord,
    RoundTiming,
    Summary,
    finite_or_none,
)
from fedgr_secure.registry import METHODS
from fedgr_secure.training import Workbench
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


@dataclass
class Federation:
    """Everything that a run holds while it runs."""

    config: Config
    method: Method
    data: FederatedData
    bench: Workbench
    randomness: Randomness
    server: ServerHalf
    runner: ClientRunner
    store: ClientStore
    recorder: ViewRecorder
    evaluator: Evaluator
    secure: SecureAggregation | None = None
    mixture: MixtureRecord | None = None

    def round(self, number: int) -> tuple[RoundRecord, RoundTiming]:
        """One round: draw the cohort, let the server half lead it, keep the clients' states, measure."""
        started = time.perf_counter()
        cohort = self._cohort(number)
        mixture = self.server.round(number, cohort)
        for client, half in cohort.halves.items():
            if half.state is not None:
                self.store.save(client, number, half.state)
            self.evaluator.note(client, half.state)
            self.evaluator.participations[client] = self.evaluator.participations.get(client, 0) + 1
        self.mixture = _mixture_record(mixture) if mixture is not None else self.mixture
        in_round = time.perf_counter() - started
        record = self._measure(number, cohort, mixture)
        seconds = dict(cohort.seconds)
        seconds["server"] = in_round - sum(seconds.values())
        seconds["evaluate"] = time.perf_counter() - started - in_round
        return record, RoundTiming(number, {name: round(value, 6) for name, value in seconds.items()})

    def drawn(self, number: int) -> tuple[int, ...]:
        """The clients of a round."""
        federation = self.config.federation
        return draw_cohort(
            number,
            clients=len(self.data.shards),
            size=min(federation.cohort, len(self.data.shards)),
            warmup=federation.warmup,
            randomness=self.randomness,
        )

    def _cohort(self, number: int) -> Cohort:
        clients = self.drawn(number)
        halves = {client: self.method.client(self.context(client), self.store.load(client)) for client in clients}
        vanishes = draw_dropouts(self.config.dropouts, number, self.randomness)
        return Cohort(number, halves, self.runner, self.recorder, self.secure, vanishes)

    def context(self, client: int) -> ClientContext:
        """One client's surroundings."""
        return ClientContext(self.data.shards[client], self.data.spec.classes, self.config, self.bench, self.randomness)

    def _measure(self, number: int, cohort: Cohort, mixture: Mixture | None) -> RoundRecord:
        weights, every = self.server.state.weights, self.config.output.memorised_every
        accuracy, loss = self.evaluator.test(weights)
        clients = tuple(cohort.halves)
        if not math.isfinite(loss):
            raise DivergedError(
                f"round {number}: the global model's test loss is {loss} after the updates of clients "
                f"{', '.join(map(str, clients))}; a smaller --lr usually helps"
            )
        last = number == self.config.federation.rounds - 1
        look = last or (every > 0 and number % every == 0)
        scores = self.evaluator.sieve_scores()
        return RoundRecord(
            round=number,
            stage="warm-up" if number < self.config.federation.warmup else "main",
            cohort=clients,
            accuracy=accuracy,
            test_loss=loss,
            estimated_noise=self.evaluator.estimated_noise(clients),
            noise_rate_pearson=scores.pearson,
            mislabel_accuracy=scores.mislabel_accuracy,
            mislabel_auc=scores.mislabel_auc,
            memorised_share=self.evaluator.memorised_share(weights) if look else None,
            mixture=_mixture_record(mixture) if mixture is not None else None,
            bytes_up=cohort.bytes_up,
            bytes_down=cohort.bytes_down,
            client_updates=cohort.updates,
            survivors=cohort.survivors if cohort.survivors != clients else None,
            secure_sum=cohort.secure_sum,
        )

    def client_records(self) -> tuple[ClientRecord, ...]:
        """Every client as it stands, for the report."""
        truth, evaluator = self.evaluator.truth, self.evaluator
        return tuple(
            ClientRecord(
                client=k,
                samples=len(shard),
                noise_kind=truth.kind[k],
                drawn_rate=finite_or_none(truth.drawn_rate[k]),
                realised_rate=float(truth.realised_rate[k]),
                estimated_rate=evaluator.verdicts[k].noise_rate if k in evaluator.verdicts else None,
                participations=evaluator.participations.get(k, 0),
            )
            for k, shard in enumerate(self.data.shards)
        )


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
            privacy=federation.method.claims(config),
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
    _check_data(folder, config, federation.data, federation.evaluator.truth)
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
    _check_data(folder, config, *_load(config))
    return summary


def _check_data(folder: RunFolder, config: Config, data: FederatedData, truth: Truth) -> None:
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


def prepare(config: Config, folder: RunFolder) -> Federation:
    """Load the data, build the model, and set both halves up; writes nothing."""
    if config.output.threads is not None or config.model.model in ("cnn", "mlp"):
        set_threads(config.output.threads or 1)
    method, randomness = METHODS[config.method], Randomness(config.seed)
    data, truth = _load(config)
    model = build_model(config.model, data.spec, seed=randomness.integer("initial weights"))
    views = Views.for_images(data.spec, config.views)
    bench = Workbench(model, views, config.training, randomness, _device(config.output.device))
    states = StateFolder(folder.checkpoints / "clients", method.client_state)
    return Federation(
        config=config,
        method=method,
        data=data,
        bench=bench,
        randomness=randomness,
        server=method.server(ServerContext(config, bench.weights(), randomness), None),
        runner=DebugRunner(bench, method.messages) if config.federation.runner == "debug" else SequentialRunner(bench),
        store=DiskStore(states) if config.federation.store == "disk" else MemoryStore(states),
        recorder=ViewRecorder(folder.view, config.output.record_view),
        evaluator=Evaluator(data, truth, bench, method),
        secure=_secure(config, data, bench, randomness) if config.secure_sum.secagg else None,
    )


def _load(config: Config) -> tuple[FederatedData, Truth]:
    return federate(load_source(config.data), config, Randomness(config.seed))


def set_threads(count: int) -> None:
    """Set the number of torch threads of this process."""
    require(1 <= count <= MOST_THREADS, f"threads: {count}, allowed: a whole number from 1 to {MOST_THREADS}")
    torch.set_num_threads(count)


def _secure(config: Config, data: FederatedData, bench: Workbench, randomness: Randomness) -> SecureAggregation:
    samples = {client: len(shard) for client, shard in enumerate(data.shards)}
    federation, settings = config.federation, config.secure_sum
    sums = SecureSums.for_clients(samples, settings, seed=config.seed, threads=torch.get_num_threads())
    return SecureAggregation.for_run(
        sums,
        settings,
        bench.weights(),
        bench.trainable(),
        samples,
        randomness,
        sizes=cohort_sizes(clients=len(samples), size=federation.cohort, warmup=federation.warmup),
    )


def _device(name: str) -> str:
    try:
        torch.empty(1, device=name).cpu()
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device: {name} cannot be used: {str(error).splitlines()[0]}") from None
    return name


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
        accuracy_last10=float(np.mean([record.accuracy for record in records[-10:]])),
        accuracy_best=max(record.accuracy for record in records),
        noise_rate_pearson=last.noise_rate_pearson,
        mislabel_accuracy=last.mislabel_accuracy,
        mislabel_auc=last.mislabel_auc,
        memorised_share=last.memorised_share,
        seconds=round(sum(phases.values()), 3),
        seconds_by_phase={name: round(value, 3) for name, value in phases.items()},
        bytes_up=sum(record.bytes_up for record in records),
        bytes_down=sum(record.bytes_down for record in records),
        client_updates=sum(record.client_updates for record in records),
        privacy=federation.method.claims(config),
        sums_given_up=_given_up(records) if config.secure_sum.secagg else None,
    )


def _given_up(records: list[RoundRecord]) -> int:
    return sum(record.secure_sum is not None and record.secure_sum.aborted is not None for record in records)


def _mixture_record(mixture: Mixture) -> MixtureRecord:
    return MixtureRecord(mixture.means, mixture.variances, mixture.weights, mixture.note)
