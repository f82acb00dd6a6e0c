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
