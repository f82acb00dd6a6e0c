"""The ledger of private training: what each client's DP-SGD may spend, has spent, and costs beside its loss proxies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedgr_secure.checks import trains_privately
from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.channels import releases_of
from fedgr_secure.federation.releases import KeptTrainings
from fedgr_secure.randomness import Randomness
from fedgr_secure.sections import Config
from fedgr_secure.wire import Weights
from privacy.channels.channel import Channel
from privacy.claims import PrivacyClaim, private_weights, whole_run
from privacy.dpsgd import DPSGD, ORDERS, plan_dpsgd, renyi_epsilon
from privacy.errors import PrivacyError


@dataclass(frozen=True)
class SeededTrainings:
    """Keys that anybody who knows the run's seed can compute: for simulations."""

    randomness: Randomness

    def key(self, client: int, round: int) -> bytes:
        """The same in every run."""
        return self.randomness.numpy("dp-sgd", client=client, round=round).bytes(32)

    def confirm(self, client: int, round: int, weights: Weights) -> None:
        """Nothing is protected."""


@dataclass(frozen=True)
class TrainingLedger:
    """The plans of DP-SGD by client, and what they compose to with the releases of the loss proxies.

    Attributes:
        plans: by client.
        clip: L2 norm of a record's gradient.
        adjacency: of the claims.
        channel: of the loss proxies; None for a method that sends none.
        keys: of noise, sampling and views; None: they come from the run's seed (a simulation).
    """

    plans: Mapping[int, DPSGD]
    clip: float
    adjacency: str
    channel: Channel | None
    keys: KeptTrainings | None

    def charged(self, client: int, rounds: int) -> int:
        """Trainings that a client was charged for, if it was drawn so many times."""
        return min(rounds, self.plans[client].trainings)

    def spent(self, client: int, trainings: int) -> float | None:
        """Epsilon of a client's weights; None in a simulation."""
        return None if self.keys is None else self.plans[client].spent(trainings)

    def total(self, client: int, trainings: int, releases: int) -> float | None:
        """Epsilon of everything that a client has sent, at the same delta; None where a part of it has none."""
        if self.keys is None:
            return None
        plan = self.plans[client]
        curve = plan.curve(trainings)
        if self.channel is not None:
            if self.channel.spent(releases) is None:
                return None
            curve = curve + self.channel.curve(ORDERS, releases)
        return renyi_epsilon(curve, plan.delta)

    def claims(self, config: Config) -> tuple[PrivacyClaim, PrivacyClaim]:
        """What is promised of the weights, and of everything together, for the client that fares worst."""
        plans = list(self.plans.values())
        rounds = plans[0].trainings
        weights = private_weights(
            epsilon=None if self.keys is None else config.dp_sgd.weights_epsilon,
            delta=config.proxies.delta,
            adjacency=self.adjacency,
            noise=(min(p.noise_multiplier for p in plans), max(p.noise_multiplier for p in plans)),
            rate=(min(p.rate for p in plans), max(p.rate for p in plans)),
            clip=self.clip,
            trainings=rounds,
        )
        releases = releases_of(config) if self.channel is not None else 0
        totals = [self.total(client, rounds, releases) for client in _distinct(self.plans)]
        known = [total for total in totals if total is not None]
        everything = whole_run(
            epsilon=max(known) if len(known) == len(totals) else None,
            delta=config.proxies.delta,
            adjacency=self.adjacency,
            proxies=self.channel is not None,
        )
        return weights, everything


def training_ledger(
    config: Config, *, samples: Sequence[int], epochs: int, channel: Channel, keys: KeptTrainings
) -> TrainingLedger | None:
    """The ledger of a run; None where the weights are not private.

    Args:
        config: checked.
        samples: how many each client holds.
        epochs: of a local training.
        channel: of the loss proxies.
        keys: kept on the clients' side.

    Raises:
        InputError: a budget that no noise can keep, or a delta at which it says nothing.
    """
    settings, delta = config.dp_sgd, config.proxies.delta
    if not trains_privately(config) or settings.weights_epsilon is None:
        return None
    total, batch = sum(samples), config.training.batch_size
    require(
        delta < 1 / total,
        f"delta: {delta}, allowed: above 0 and below 1/n = {1 / total:.3g} for {total} records",
    )
    trainings = min(settings.trainings or config.federation.rounds, config.federation.rounds)
    made: dict[int, DPSGD] = {}
    try:
        for count in sorted(set(samples)):
            size = min(batch, count)
            made[count] = plan_dpsgd(
                settings.weights_epsilon,
                delta,
                rate=size / count,
                steps=epochs * -(-count // size),
                trainings=trainings,
            )
    except PrivacyError as error:
        raise InputError(f"weights_epsilon: {error}") from None
    return TrainingLedger(
        plans={client: made[count] for client, count in enumerate(samples)},
        clip=settings.gradient_clip,
        adjacency=config.proxies.adjacency,
        channel=channel if config.method == "fedgr" else None,
        keys=keys if config.proxies.noise == "system" else None,
    )


def _distinct(plans: Mapping[int, DPSGD]) -> list[int]:
    """One client for each plan."""
    return list({plan: client for client, plan in plans.items()}.values())
