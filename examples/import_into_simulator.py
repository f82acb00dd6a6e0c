"""Your own simulator, with three parts of ours: FedGR's sieve, a private channel for the losses, secure sums.

    python examples/import_into_simulator.py

`simulator.py` beside this file knows nothing of fedgr-secure. It runs three times: on all labels; sieved by losses in
the clear; and sieved by a histogram of the losses at epsilon 1. Updates travel under secure sums. Nothing is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from simulator import CLASSES, Client, Vector, federation, losses, run

from fedgr_secure import Mixture, NoisyCounts, fit_evidence, fit_mixture, judge
from fedgr_secure.method.proxies import cap_losses, running_mean
from privacy import secagg
from privacy.channels import Budget, HistogramProxies, Losses, Memory, Schedule, SystemNoise

CLIENTS, ROUNDS = 10, 25
SIEVED = Schedule(first=6, dense_until=6, every=6)  # rounds in which losses are uploaded: 6, 12, 18, 24
LARGEST = float(2 * np.log(CLASSES))  # nats, to which losses are clipped: twice the loss of a blind guess
ENTROPY = secagg.SystemEntropy()
IDENTITIES = {number: secagg.Identity.generate(ENTROPY) for number in range(CLIENTS)}
ENROLLED = secagg.Enrolment({number: identity.public for number, identity in IDENTITIES.items()})


@dataclass
class Sieved:
    """What a client remembers between rounds, besides its data; a deployment keeps it across crashes."""

    data: Client
    mean: Vector = field(default_factory=lambda: np.empty(0))
    memory: Memory = field(default_factory=Memory.fresh)  # of releases that were charged to its budget
    noise_rate: float = 0.0


def parameters_of(group: secagg.Group) -> secagg.Parameters:
    """Neighbours and threshold; one client may collude with the server."""
    return secagg.Parameters.for_cohort(secagg.Layout((group,), CLIENTS, largest_weight=512), colluders=1)


def secure_sum(group: secagg.Group, values: list, weights: list[int], round: int, model: Vector) -> secagg.Total:
    """The weighted mean of real values, or the sum of counts. Every sum has a name of its own; all halves play here."""
    parameters, digest = parameters_of(group), hashlib.sha256(model.tobytes()).digest()
    context = secagg.sum_context(ENTROPY.draw(32), round, group.name, parameters, digest)
    public: dict[str, Any] = {"enrolled": ENROLLED, "parameters": parameters, "context": context}
    clients = {
        k: secagg.SecureSumClient(k, identity, policy=secagg.Policy.of(parameters), weight=weights[k], **public)
        for k, identity in IDENTITIES.items()
    }
    gives = [secagg.Contribution({group.name: value}, np.random.default_rng()) for value in values]
    return secagg.Wire(secagg.SecureSumServer(**public), clients, gives.__getitem__).run()


def histogram(records: int, largest: int) -> HistogramProxies:
    """Epsilon 1 for each record over all four releases; the noise of the fewest honest clients suffices."""
    summed = parameters_of(secagg.Group("counts", 24, 1, kind="count"))
    budget = Budget(1.0, 1e-5, releases=4, adjacency="replace-one", records=records, largest=largest)
    edges = LARGEST * np.linspace(0, 1, 25) ** 1.5
    return HistogramProxies(budget, tuple(edges), min(summed.honest, summed.survivors - 1), SIEVED)


def in_the_clear(clients: Sequence[Sieved], round: int, model: Vector) -> Mixture:
    """The server sees every running mean."""
    return fit_mixture(np.concatenate([client.mean for client in clients]), seed=round)


def private(clients: Sequence[Sieved], round: int, model: Vector) -> Mixture:
    """Each client counts its running means and adds its share of the noise; the server sees the sum alone."""
    sizes = [len(client.mean) for client in clients]
    channel, counts = histogram(sum(sizes), max(sizes)), []
    for client in clients:
        upload, client.memory = channel.encode(Losses(client.mean, client.mean), client.memory, SystemNoise())
        counts.append(upload["counts"])
    group = secagg.Group("counts", channel.bins, channel.largest_count, kind="count")
    opened = secure_sum(group, counts, [1] * CLIENTS, round, model).counts["counts"]
    evidence = NoisyCounts(np.array(channel.edges), opened.astype(float), channel.variance(CLIENTS), float(sum(sizes)))
    return fit_evidence(evidence, seed=round)


def simulate(name: str, sieve: Callable[[Sequence[Sieved], int, Vector], Mixture] | None) -> None:
    """One run of the simulator, and its figures."""
    draw = np.random.default_rng(0)
    data, images, labels = federation(CLIENTS, draw)
    clients = [Sieved(client) for client in data]

    def observe(number: int, weights: Vector) -> None:
        for client in clients:
            client.mean = running_mean(client.mean, number, cap_losses(losses(weights, client.data), LARGEST))
        if sieve is not None and SIEVED.due(number):
            mixture = sieve(clients, number, weights)
            for client in clients:  # each on its own side, from its exact losses
                verdict = judge(mixture, client.mean)
                client.noise_rate, client.data.kept = verdict.noise_rate, verdict.q >= 0.5

    def average(number: int, model: Vector, changes: list[Vector]) -> Vector:
        group = secagg.Group("update", len(model), limit=8.0)  # coordinates beyond are clipped, and counted
        sizes = [max(int(client.data.kept.sum()), 1) for client in clients]  # nobody is told another's
        return secure_sum(group, changes, sizes, number, model).means["update"]

    accuracy = run(data, images, labels, rounds=ROUNDS, observe=observe, average=average, draw=draw)
    rates = [(client.noise_rate, client.data.wrong.mean()) for client in clients]
    pearson = np.corrcoef(rates, rowvar=False)[0, 1] if sieve else float("nan")
    spent = clients[0].memory.releases
    print(f"{name}: accuracy {accuracy:.3f}, Pearson of noise rates {pearson:.3}, releases charged {spent}")


if __name__ == "__main__":
    simulate("no sieve", None)
    simulate("sieve, losses in the clear", in_the_clear)
    simulate("sieve, histogram at epsilon 1", private)
