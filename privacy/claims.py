"""Typed privacy claims: an epsilon never travels alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrivacyClaim:
    """What one thing that leaves a client is protected by.

    Attributes:
        subject: what the claim is about, such as "loss proxies" or "model weights".
        channel: how it travels, such as "plain".
        mechanism: the randomised mechanism, or None for no mechanism.
        epsilon: the bound in nats, or None: no differential privacy.
        delta: the failure probability that belongs to epsilon, or None.
        adjacency: the neighbouring relation, such as "replace-one", or None.
        sampling: the assumption about sampling, or None.
        statement: the claim in one plain sentence.
    """

    subject: str
    channel: str
    mechanism: str | None
    epsilon: float | None
    delta: float | None
    adjacency: str | None
    sampling: str | None
    statement: str

    def __post_init__(self) -> None:
        if self.epsilon is not None and None in (self.delta, self.adjacency, self.mechanism, self.sampling):
            raise ValueError(
                f"claim on {self.subject}: epsilon {self.epsilon} alone, allowed: with delta, adjacency, mechanism and "
                "sampling"
            )

    def __str__(self) -> str:
        """The claim on one line, with everything its epsilon depends on."""
        if self.epsilon is None:
            return f"{self.subject} ({self.channel}): no differential privacy. {self.statement}"
        return (
            f"{self.subject} ({self.channel}): epsilon {self.epsilon:g} at delta {self.delta:g}, {self.adjacency}, "
            f"{self.mechanism}, sampling: {self.sampling}. {self.statement}"
        )


def no_privacy(subject: str, channel: str, statement: str) -> PrivacyClaim:
    """The claim of something that is not differentially private.

    >>> print(no_privacy("model weights", "plain", "The server sees every client's update."))
    model weights (plain): no differential privacy. The server sees every client's update.
    """
    return PrivacyClaim(subject, channel, None, None, None, None, None, statement)


def summed_weights(*, colluders: int, insecure: bool) -> PrivacyClaim:
    """The claim about weights that travel under secure aggregation and are trained without differential privacy.

    Args:
        colluders: clients that may help the server to read a sum, at most.
        insecure: the masks come from a seed, as in a simulation that is to repeat every byte.
    """
    if insecure:
        statement = "A simulated secure sum: its keys come from the run's seed, so that nothing is hidden."
    else:
        statement = (
            "The server sees the weighted mean over a round's clients, never one client's update, while at most "
            f"{colluders} of a cohort collude with it. Neither the mean nor the model is differentially private."
        )
    return no_privacy("model weights", "secure sum", statement)


def plain_weights() -> PrivacyClaim:
    """The claim about weights that travel in the clear and are trained without differential privacy."""
    return no_privacy(
        "model weights",
        "plain",
        "The server sees every client's update, and the model itself is not differentially private.",
    )


def private_weights(
    *,
    epsilon: float | None,
    delta: float,
    adjacency: str,
    noise: tuple[float, float],
    rate: tuple[float, float],
    clip: float,
    trainings: int,
) -> PrivacyClaim:
    """The claim about weights that every client trains by DP-SGD.

    Args:
        epsilon: of all trainings of a client; None in a simulation.
        delta: its failure probability.
        adjacency: the neighbouring relation.
        noise, rate: the least and the largest noise multiplier and sampling rate of any client.
        clip: the norm that a record's gradient is clipped to.
        trainings: of a client at most.
    """
    words = (
        f"Each client's own updates, whoever sees them, over at most {trainings} trainings; for any fixed sequence of "
        "mixtures. Noise, sampling and views come from ChaCha20 under a key of the operating system; the noise "
        "is floating point, whose rounding is not accounted for."
    )
    if epsilon is None:
        return no_privacy("model weights", "DP-SGD", f"A simulation: the noise comes from the run's seed. {words}")
    return PrivacyClaim(
        subject="model weights",
        channel="DP-SGD",
        mechanism=f"Gaussian, noise multiplier {_span(noise)}, gradients clipped at {clip:g}",
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        sampling=f"Poisson in secret, rate {_span(rate)}; cohorts are chosen by the server",
        statement=words,
    )


def whole_run(*, epsilon: float | None, delta: float, adjacency: str, proxies: bool) -> PrivacyClaim:
    """The claim about everything that a client sends in a run.

    Args:
        epsilon: of all together, for the client that fares worst; None where a part has none.
        delta: its failure probability.
        adjacency: the neighbouring relation.
        proxies: whether loss proxies are part of it.
    """
    what = "weights and loss proxies" if proxies else "weights"
    words = (
        f"Everything that a client sends: {what}, under the conditions of their claims, with models and mixtures that "
        "follow from it; numbers of records are public. The run's folder, with every client's state and the truth, is "
        "not covered."
    )
    if epsilon is None:
        return no_privacy("whole run", "all", f"A part of it claims nothing. {words}")
    return PrivacyClaim(
        subject="whole run",
        channel="all",
        mechanism="Renyi composition",
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        sampling="as of its parts",
        statement=words,
    )


def _span(values: tuple[float, float]) -> str:
    low, high = f"{values[0]:.3g}", f"{values[1]:.3g}"
    return low if low == high else f"{low} to {high}"
