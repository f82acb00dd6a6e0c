"""Parameters, policies and what names a sum: everything that promises less than it seems is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secagg_driver import complete, enrolment, identity, layout_of, ring

from privacy.secagg import (
    ConfigurationError,
    Contribution,
    Group,
    Layout,
    MessageError,
    Parameters,
    Policy,
    SecAggError,
    SecureSumClient,
    SecureSumServer,
    sum_context,
)
from privacy.secagg import parameters as parameters_module

VALID = ring(12, 6, 4, absent=1, survivors=3)


@pytest.mark.parametrize(
    ("clients", "changes", "message"),
    [
        (1, {"neighbours": 1, "threshold": 2}, "clients: 1, allowed: from 2"),
        (5, {"neighbours": 0, "threshold": 2}, "neighbours: 0, allowed: from 1 to clients - 1 = 4"),
        (5, {"neighbours": 5, "threshold": 3}, "neighbours: 5, allowed: from 1 to clients - 1 = 4"),
        (5, {"neighbours": 3, "threshold": 2}, "neighbours: 3, allowed on a ring: an even number"),
        (5, {"neighbours": 4, "threshold": 2}, "threshold: 2, allowed: more than half of 5 holders, at most all"),
        (5, {"neighbours": 4, "threshold": 6}, "threshold: 6, allowed: more than half of 5 holders, at most all"),
        (4, {"neighbours": 3, "threshold": 2}, "threshold: 2, allowed: more than half of 4 holders, at most all"),
        (5, {"neighbours": 2, "threshold": 3}, "threshold: 3, allowed: more than half of 2 holders, at most all"),
        (5, {"neighbours": 4, "threshold": 3, "absent": -1}, "absent: -1, allowed: from 0 to below clients = 5"),
        (5, {"neighbours": 4, "threshold": 3, "absent": 5}, "absent: 5, allowed: from 0 to below clients = 5"),
        (5, {"neighbours": 4, "threshold": 3, "survivors": 1}, "survivors: 1, allowed: from 2 to clients = 5"),
        (5, {"neighbours": 4, "threshold": 3, "survivors": 6}, "survivors: 6, allowed: from 2 to clients = 5"),
    ],
)
def test_parameters_that_cannot_work_are_refused(clients, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        Parameters(layout_of(clients), **changes)


@pytest.mark.parametrize("name", ["neighbours", "threshold", "absent", "survivors"])
@pytest.mark.parametrize("value", [4.0, 4.5, True, "4", None, float("nan")])
def test_parameters_that_are_no_whole_numbers_are_refused(name, value):
    """Two parties that write 4.5 into 4 bytes would not agree on it."""
    with pytest.raises(ConfigurationError, match=f"{name}: {value!r}, allowed: a whole number"):
        dataclasses.replace(VALID, **{name: value})


def test_parameters_come_back_from_their_bytes():
    for parameters in (VALID, complete(5, 3), ring(40, 10, 7, absent=3, survivors=9)):
        assert Parameters.from_bytes(parameters.to_bytes()) == parameters


@given(st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_any_other_bytes_are_other_parameters_or_none(at, value, cut):
    data = bytearray(VALID.to_bytes())
    if cut:
        data = data[: at % len(data)]
    else:
        data[at % len(data)] = value
    try:
        assert Parameters.from_bytes(bytes(data)).to_bytes() == data
    except SecAggError as refused:
        assert str(refused)


def test_bytes_of_something_else_are_no_parameters():
    with pytest.raises(MessageError, match="parameters: 3 bytes that hold none of this version"):
        Parameters.from_bytes(b"FSP")


# for_cohort


@pytest.mark.parametrize(
    ("clients", "colluders", "survivors"),
    [
        (50, 29, 40),  # 2 t > 50 + 29
        (100, 10, 95),  # on the ring all but the 5 that may vanish
        (100, 0, 95),
        (10, 1, 6),  # at least t = 6: 2 t > 10 + 1
        (10, None, 6),
        (9, None, 6),  # one may collude, though a tenth of 9 is none: 2 t > 9 + 1
        (10, 8, 10),
        (2, None, 2),
    ],
)
def test_a_sum_of_survivors_holds_two_honest_clients(clients, colluders, survivors):
    layout = Layout((Group("w", 1, 1.0),), clients, 10)
    assert Parameters.for_cohort(layout, colluders=colluders, dropout=0.05).survivors == survivors


def test_the_ring_is_sized_for_every_colluder_on_the_smallest_roster(monkeypatch):
    asked, find = [], parameters_module.find_degree
    monkeypatch.setattr(parameters_module, "find_degree", lambda n, **given: asked.append(given) or find(n, **given))
    large = Parameters.for_cohort(Layout((Group("w", 1, 1.0),), 1000, 10), colluders=100, dropout=0.1)
    assert asked[0]["least"] == large.survivors == 900
    # 100 colluders among 900 are more of a client's neighbours than among 1000, where k = 188 and t = 139 would do
    assert (large.neighbours, large.threshold) == (196, 147)


def test_a_small_cohort_is_complete_and_a_large_one_sparse():
    assert Parameters.for_cohort(layout_of(60)).complete
    large = Parameters.for_cohort(Layout((Group("w", 1, 1.0),), 200, 10), colluders=10, dropout=0.05)
    assert not large.complete
    assert large.neighbours < 199 and large.absent == 1
    assert 2 * large.threshold > large.neighbours


def test_the_servers_choice_between_ring_orders_is_paid_for(monkeypatch):
    """It may leave out one nonce after it has seen the others: 201 orders to choose from, fewer than 2^9.

    And it may do so after each of fewer than 2^8 clients, when it tells every one of them of other members.
    """
    asked, find = [], parameters_module.find_degree
    monkeypatch.setattr(parameters_module, "find_degree", lambda n, **given: asked.append(given) or find(n, **given))
    Parameters.for_cohort(Layout((Group("w", 1, 1.0),), 200, 10), colluders=10, dropout=0.05)
    assert asked[0]["sigma"] == 40 + 9 + 8


@pytest.mark.parametrize("server", ["curious", "lying", "active"])
def test_a_sparse_threshold_is_always_more_than_half(server):
    """Against a curious server 11 of 22 would do (Bell et al. 2020), but then two camps can open both secrets."""
    layout = Layout((Group("w", 1, 1.0),), 100, 10)
    parameters = Parameters.for_cohort(layout, colluders=10, dropout=0.1, server=server)
    assert parameters.neighbours < 99
    assert 2 * parameters.threshold > parameters.neighbours


@pytest.mark.parametrize(("colluders", "message"), [(-1, " of 10"), (9, " of 10"), (10, " of 10"), (0.1, ", allowed")])
def test_a_sum_without_two_honest_clients_is_refused(colluders, message):
    with pytest.raises(ConfigurationError, match=f"colluders: {colluders}{message}"):
        Parameters.for_cohort(layout_of(10), colluders=colluders)


# Policies


def test_a_policy_of_parameters_takes_just_what_they_promise_or_more():
    policy = Policy.of(VALID)
    for better in (VALID, dataclasses.replace(VALID, threshold=6, absent=0, survivors=12)):
        policy.check(better)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": 5, "neighbours": 8}, "neighbours: 8, allowed by this client: 6"),
        ({"neighbours": 4}, "neighbours: 4, allowed by this client: 6"),
        ({"absent": 2}, "absent: 2, allowed by this client: up to 1"),
        ({"survivors": 2}, "survivors: 2, allowed by this client: from 3"),
        ({"layout": layout_of(13)}, "layout: other groups"),
        ({"layout": dataclasses.replace(VALID.layout, largest_weight=11)}, "layout: other groups"),
        ({"layout": dataclasses.replace(VALID.layout, groups=VALID.layout.groups[:2])}, "layout: other groups"),
        ({"layout": dataclasses.replace(VALID.layout, groups=VALID.layout.groups[::-1])}, "layout: other groups"),
    ],
)
def test_a_policy_refuses_what_promises_less(changes, message):
    """More neighbours are less, too: t is a smaller part of the holders, and a lying server could reach it twice."""
    with pytest.raises(ConfigurationError, match=message):
        Policy.of(VALID).check(dataclasses.replace(VALID, **changes))


@pytest.mark.parametrize("change", [{"limit": 2.0}, {"bits": 64}, {"size": 4}, {"name": "v"}, {"kind": "count"}])
def test_a_policy_refuses_another_clip_ring_size_name_or_kind(change):
    one = Layout((Group("w", 3, 1.0),), 12, 10)
    other = Layout((dataclasses.replace(one.groups[0], **change),), 12, 10)
    with pytest.raises(ConfigurationError, match="layout: other groups, ranges, rings or weights than this client's"):
        Policy.of(Parameters(one, 6, 4)).check(Parameters(other, 6, 4))


# What names a sum

NAMED = {"session": b"s", "round": 0, "purpose": "weights", "parameters": VALID, "model": b"m"}


def test_a_context_is_32_bytes_that_differ_with_all_they_name():
    changes = [
        {},
        {"session": b"t"},
        {"round": 1},
        {"purpose": "losses"},
        {"model": b"n"},
        {"parameters": dataclasses.replace(VALID, threshold=5)},
        {"session": b"sm", "model": b""},  # lengths are under the hash
        {"session": b"", "model": b"sm"},
    ]
    contexts = {sum_context(**(NAMED | change)) for change in changes}
    assert len(contexts) == len(changes)
    assert {len(context) for context in contexts} == {32}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"session": "s"}, "session: a str, allowed: bytes"),
        ({"model": None}, "model: a NoneType, allowed: bytes"),
        ({"round": -1}, "round: -1, allowed: from 0 to below 2.64"),
        ({"round": 2**64}, "round: 18446744073709551616, allowed: from 0 to below 2.64"),
        ({"round": 1.0}, "round: 1.0, allowed: a whole number"),
        ({"purpose": b"weights"}, "purpose: b'weights', allowed: printable text"),
        ({"purpose": "\ud800"}, "purpose: '.ud800', allowed: printable text"),
    ],
)
def test_what_cannot_name_a_sum_is_refused(change, message):
    with pytest.raises(ConfigurationError, match=message):
        sum_context(**(NAMED | change))


def client_of(**changes):
    named = {
        "enrolled": enrolment(12),
        "parameters": VALID,
        "policy": Policy.of(VALID),
        "context": bytes(32),
        "weight": 1,
    }
    number, own = changes.pop("number", 0), changes.pop("identity", identity(0))
    return SecureSumClient(number, own, **(named | changes))


@pytest.mark.parametrize("context", [b"", bytes(31), bytes(33), "c" * 32, None])
def test_another_context_is_refused_by_both_halves(context):
    """An envelope would cut it or fill it up with zeros without notice."""
    with pytest.raises(ConfigurationError, match=r"context: .*, allowed: the 32 bytes that sum_context gives"):
        client_of(context=context)
    with pytest.raises(ConfigurationError, match=r"context: .*, allowed: the 32 bytes that sum_context gives"):
        SecureSumServer(enrolled=enrolment(12), parameters=VALID, context=context)


@pytest.mark.parametrize("change", [{"number": 1}, {"number": 12}, {"number": -1}, {"number": 0.0}, {"number": None}])
def test_a_client_that_is_not_enrolled_as_it_is_finds_out_at_once(change):
    with pytest.raises(ConfigurationError, match=r"client .*: not enrolled with this identity, allowed"):
        client_of(**change)
    assert client_of()


def test_a_contribution_does_not_show_what_the_sum_hides():
    shown = repr(Contribution({"w": np.array([0.123456])}, np.random.default_rng(0)))
    assert "0.123456" not in shown


@pytest.mark.parametrize("weight", [0, -1, 11, 1.0, True, None, "3"])
def test_a_weight_that_is_none_is_refused_before_the_first_message(weight):
    assert VALID.layout.largest_weight == 10
    with pytest.raises(ConfigurationError, match=f"weight: {weight!r}, allowed: a whole number from 1 to 10"):
        client_of(weight=weight)


@pytest.mark.parametrize(("dropout", "fits"), [(0.4, True), (0.41, True), (0.5, False)])
def test_the_complete_graph_leaves_t_when_as_many_vanish_as_are_expected_to(dropout, fits):
    # n = 10 with one corrupt: 2 t > 11, so t = 6; 0.41 of 10 are 4 whole clients
    layout = Layout((Group("w", 1, 1.0),), 10, 10)
    if fits:
        assert Parameters.for_cohort(layout, dropout=dropout).threshold == 6
    else:
        with pytest.raises(ConfigurationError, match=r"dropout: 0.5 leaves 5 of 10 clients, allowed: 6 or more stay"):
            Parameters.for_cohort(layout, dropout=dropout)
