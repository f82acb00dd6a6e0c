"""A federation: everything that a run holds while it runs, and one round of it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from fedgr_secure.checks import oracle, sums_securely
from fedgr_secure.claims import weights_claim
from fedgr_secure.cohorts import cohort_sizes, draw_cohort
from fedgr_secure.context import ClientContext, Method, ServerContext, ServerHalf
from fedgr_secure.data.federated import federate
from fedgr_secure.data.sources import load_source
from fedgr_secure.data.types import FederatedData, Truth
from fedgr_secure.data.views import Views
from fedgr_secure.dpsgd import PrivateSGD
from fedgr_secure.errors import DivergedError, InputError, require
from fedgr_secure.federation.channels import channel_for
from fedgr_secure.federation.cohort import Cohort, draw_dropouts
from fedgr_secure.federation.counts import SecureCounts
from fedgr_secure.federation.evaluate import Evaluator
from fedgr_secure.federation.folder import MOST_THREADS, RunFolder
from fedgr_secure.federation.model import model_of
from fedgr_secure.federation.releases import KeptReleases, KeptTrainings, MadeAnew
from fedgr_secure.federation.runner import ClientRunner, DebugRunner, SequentialRunner
from fedgr_secure.federation.secure import SecureAggregation
from fedgr_secure.federation.store import ClientStore, DiskStore, MemoryStore, StateFolder
from fedgr_secure.federation.sums import SecureSums
from fedgr_secure.federation.training_ledger import SeededTrainings, TrainingLedger, training_ledger
from fedgr_secure.federation.view import ViewRecorder
from fedgr_secure.method.sieve import Mixture
from fedgr_secure.randomness import Randomness
from fedgr_secure.records import (
    ClientRecord,
    MixtureRecord,
    ReleaseRecord,
    RoundRecord,
    RoundTiming,
    TrainingRecord,
    finite_or_none,
)
from fedgr_secure.registry import METHODS
from fedgr_secure.sections import Config
from fedgr_secure.training import Workbench
from privacy.channels.channel import Channel
from privacy.channels.histogram import HistogramProxies
from privacy.claims import PrivacyClaim
from privacy.mechanisms import InsecureSeededNoise, NoiseSource, SystemNoise


@dataclass(frozen=True)
class Sums:
    """The secure sums of a run; None: what they would carry travels otherwise, or not at all."""

    weights: SecureAggregation | None = None
    counts: SecureCounts | None = None


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
    channel: Channel
    sums: Sums
    releases: KeptReleases
    training: TrainingLedger | None = None
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

    def claims(self) -> tuple[PrivacyClaim, ...]:
        """What is promised about everything that leaves a client."""
        if self.training is None:
            return self.method.claims(self.config, self.channel, weights_claim(self.config))
        weights, everything = self.training.claims(self.config)
        return (*self.method.claims(self.config, self.channel, weights), everything)

    def forget_before(self, number: int) -> None:
        """Let go of what was kept for rounds that a checkpoint now holds."""
        self.releases.records.forget_before(number)
        if self.training is not None and self.training.keys is not None:
            self.training.keys.records.forget_before(number)

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
        sums = self.sums
        return Cohort(number, halves, self.runner, self.recorder, sums.weights, sums.counts, vanishes)

    def context(self, client: int) -> ClientContext:
        """One client's surroundings."""
        return ClientContext(
            self.data.shards[client],
            self.data.spec.classes,
            self.config,
            self.bench,
            self.randomness,
            self.channel,
            lambda round: self._noise(client, round),
            self.releases if self.channel.private else MadeAnew(),
            self._oracle_rate(client),
        )

    def _oracle_rate(self, client: int) -> float | None:
        """The client's true noise rate, where the configuration asks for it; the evaluator tells nobody anything else.

        Raises:
            InputError: it is not known.
        """
        if oracle(self.config) is None:
            return None
        rate = finite_or_none(self.evaluator.truth.realised_rate[client])
        require(rate is not None, f"forget: oracle, allowed: with true labels; those of client {client} are not known")
        return rate

    def _noise(self, client: int, round: int) -> NoiseSource:
        """Of a private channel; from the seed only in a simulation that says so."""
        if self.config.proxies.noise == "system":
            return SystemNoise()
        return InsecureSeededNoise(self.randomness.numpy("proxy noise", client=client, round=round))

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
            mislabel_calibration_error=scores.mislabel_calibration_error,
            memorised_share=self.evaluator.memorised_share(weights) if look else None,
            mixture=_mixture_record(mixture) if mixture is not None else None,
            bytes_up=cohort.bytes_up,
            bytes_down=cohort.bytes_down,
            client_updates=cohort.updates,
            survivors=cohort.survivors if cohort.survivors != clients else None,
            secure_sum=cohort.secure_sum,
            release=self._release_record(cohort),
            training=self._training_record(cohort),
        )

    def _release_record(self, cohort: Cohort) -> ReleaseRecord | None:
        """What the cohort's clients have been charged for, where a private channel asked for uploads."""
        if not (self.channel.private and cohort.released):
            return None
        charged = {str(client): self.evaluator.releases.get(client, 0) for client in cohort.halves}
        sent = self.releases.records.of_round(cohort.round)
        return ReleaseRecord(charged, self.channel.spent(max(charged.values())), sent, cohort.counted)

    def _training_record(self, cohort: Cohort) -> TrainingRecord | None:
        """What DP-SGD has charged the cohort's clients for: every round in which they were drawn, up to its cap."""
        ledger, evaluator = self.training, self.evaluator
        if ledger is None:
            return None
        charged = {k: ledger.charged(k, evaluator.participations.get(k, 0)) for k in cohort.halves}
        spent = [ledger.spent(k, count) for k, count in charged.items()]
        totals = [ledger.total(k, count, evaluator.releases.get(k, 0)) for k, count in charged.items()]
        sent = ledger.keys.records.of_round(cohort.round) if ledger.keys is not None else ()
        return TrainingRecord({str(k): count for k, count in charged.items()}, _most(spent), _most(totals), sent)

    def client_records(self) -> tuple[ClientRecord, ...]:
        """Every client as it stands, for the report."""
        truth, evaluator, private = self.evaluator.truth, self.evaluator, self.channel.private
        ledger, rounds = self.training, self.evaluator.participations
        charged = {k: ledger.charged(k, rounds.get(k, 0)) for k in range(len(self.data.shards))} if ledger else {}
        return tuple(
            ClientRecord(
                client=k,
                samples=len(shard),
                noise_kind=truth.kind[k],
                drawn_rate=finite_or_none(truth.drawn_rate[k]),
                realised_rate=float(truth.realised_rate[k]),
                estimated_rate=evaluator.verdicts[k].noise_rate if k in evaluator.verdicts else None,
                participations=evaluator.participations.get(k, 0),
                releases=evaluator.releases.get(k, 0) if private else None,
                epsilon=self.channel.spent(evaluator.releases.get(k, 0)) if private else None,
                trainings=charged.get(k),
                total_epsilon=ledger.total(k, charged[k], evaluator.releases.get(k, 0)) if ledger else None,
            )
            for k, shard in enumerate(self.data.shards)
        )


def prepare(config: Config, folder: RunFolder) -> Federation:
    """Load the data, build the model, and set both halves up; writes nothing."""
    if config.output.threads is not None or config.model.model in ("cnn", "mlp"):
        set_threads(config.output.threads or 1)
    method, randomness = METHODS[config.method], Randomness(config.seed)
    data, truth = load(config)
    model = model_of(config, data.spec)
    views = Views.for_images(data.spec, config.views)
    bench = Workbench(model, views, config.training, randomness, _device(config.output.device))
    samples = [len(shard) for shard in data.shards]
    federation = config.federation
    sizes = cohort_sizes(clients=len(samples), size=federation.cohort, warmup=federation.warmup)
    channel = channel_for(config, classes=data.spec.classes, samples=samples, sizes=sizes)
    ledger = training_ledger(
        config,
        samples=samples,
        epochs=1 if method.pooled else config.training.local_epochs,
        channel=channel,
        keys=KeptTrainings(folder.checkpoints / "trainings", plan=repr(config.dp_sgd)),
    )
    evaluator = Evaluator(data, truth, bench, method)
    if ledger is not None:
        keys = ledger.keys or SeededTrainings(randomness)
        bench.sgd = PrivateSGD(ledger.plans, ledger.clip, lambda k: evaluator.participations.get(k, 0), keys)
    states = StateFolder(folder.checkpoints / "clients", method.client_state)
    return Federation(
        config=config,
        method=method,
        data=data,
        bench=bench,
        randomness=randomness,
        server=method.server(ServerContext(config, bench.weights(), randomness, channel), None),
        runner=DebugRunner(bench, method.messages) if config.federation.runner == "debug" else SequentialRunner(bench),
        store=DiskStore(states) if config.federation.store == "disk" else MemoryStore(states),
        recorder=ViewRecorder(folder.view, config.output.record_view),
        evaluator=evaluator,
        channel=channel,
        sums=_sums(config, samples, sizes, bench, randomness, channel) if sums_securely(config) else Sums(),
        releases=KeptReleases(folder.checkpoints / "releases", plan=repr(channel)),
        training=ledger,
    )


def load(config: Config) -> tuple[FederatedData, Truth]:
    """The data, as the clients hold them, and the truth about their labels."""
    return federate(load_source(config.data), config, Randomness(config.seed))


def set_threads(count: int) -> None:
    """Set the number of torch threads of this process."""
    require(1 <= count <= MOST_THREADS, f"threads: {count}, allowed: a whole number from 1 to {MOST_THREADS}")
    torch.set_num_threads(count)


def _sums(
    config: Config,
    samples: Sequence[int],
    sizes: Collection[int],
    bench: Workbench,
    randomness: Randomness,
    channel: Channel,
) -> Sums:
    """The secure sums of a run: of the weights, and of the histograms where the channel has any."""
    settings, each = config.secure_sum, dict(enumerate(samples))
    sums = SecureSums.for_clients(each, settings, seed=config.seed, threads=torch.get_num_threads())
    weights = SecureAggregation.for_run(
        sums, settings, bench.weights(), bench.trainable(), each, randomness, sizes=sizes
    )
    if not isinstance(channel, HistogramProxies):
        return Sums(weights)
    return Sums(weights, SecureCounts.for_run(sums, settings, channel, sizes=sizes))


def _device(name: str) -> str:
    try:
        torch.empty(1, device=name).cpu()
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device: {name} cannot be used: {str(error).splitlines()[0]}") from None
    return name


def _most(values: Sequence[float | None]) -> float | None:
    """The largest; None where one is unknown."""
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _mixture_record(mixture: Mixture) -> MixtureRecord:
    return MixtureRecord(mixture.means, mixture.variances, mixture.weights, mixture.note)
