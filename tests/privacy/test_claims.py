"""Claims: an epsilon never travels alone."""

import dataclasses

import pytest

from privacy.claims import PrivacyClaim, no_privacy, plain_weights

FULL = PrivacyClaim(
    subject="loss proxies",
    channel="histogram",
    mechanism="discrete Gaussian",
    epsilon=1.25,
    delta=1e-5,
    adjacency="replace-one",
    sampling="none",
    statement="Holds per release.",
)


@pytest.mark.parametrize("part", ["delta", "adjacency", "mechanism", "sampling"])
def test_an_epsilon_without_what_it_depends_on_is_refused(part):
    with pytest.raises(ValueError, match=r"claim on loss proxies: epsilon 1.25 alone"):
        dataclasses.replace(FULL, **{part: None})


def test_an_epsilon_of_zero_is_an_epsilon():
    with pytest.raises(ValueError, match="epsilon 0"):
        dataclasses.replace(FULL, epsilon=0.0, delta=None)


def test_the_text_holds_everything():
    text = str(FULL)
    for part in (
        "loss proxies",
        "histogram",
        "discrete Gaussian",
        "epsilon 1.25",
        "delta 1e-05",
        "replace-one",
        "sampling: none",
        "Holds per release.",
    ):
        assert part in text
    assert "\n" not in text


def test_no_privacy_says_so():
    claim = no_privacy("loss proxies", "plain", "The server sees all.")
    assert claim.epsilon is None and claim.delta is None
    assert str(claim) == "loss proxies (plain): no differential privacy. The server sees all."
    assert "no differential privacy" in str(plain_weights()) and "epsilon" not in str(plain_weights())


def test_claims_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL.epsilon = 0.1
