"""Verdicts that clients of baselines keep for the evaluator: what is stored, what is measured, what is refused."""

import dataclasses
import math
import re

import numpy as np
import pytest
import tiny_client as tiny

from fedgr_secure.baselines.verdicts import NO_VERDICT
from fedgr_secure.errors import CheckpointError, InputError
from fedgr_secure.federation.loop import resume
from fedgr_secure.method.sieve import Verdict
from fedgr_secure.registry import METHODS
from fedgr_secure.wire import from_bytes, to_bytes

KEEPING = ("coteaching", "dividemix", "feddiv")


@pytest.mark.parametrize("method", KEEPING)
def test_the_evaluator_is_shown_the_newest_verdict_and_none_before_the_first(method):
    subject, q = METHODS[method], np.array([0.9, 0.5, 0.2, 0.4])
    stored = from_bytes(to_bytes(Verdict.of(q)), [subject.client_state])
    shown = subject.verdict(stored)
    assert shown.q.tolist() == q.tolist() and shown.q.dtype == np.float64
    assert shown.noise_rate == 0.5, "two of four are below 0.5"
    unjudged = from_bytes(to_bytes(NO_VERDICT), [subject.client_state])
    assert subject.verdict(unjudged) is None
    for state in (stored, unjudged):
        subject.check_client(state, tiny.context(own=tiny.shard(4)))
        assert subject.client(tiny.context(own=tiny.shard(4)), state).state is state


@pytest.mark.parametrize("method", KEEPING)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q": np.ones(3)}, "q: float64[3], allowed: float64[4]"),
        ({"q": np.ones((0, 4))}, "q: float64[0, 4], allowed: float64[0]"),
        ({"q": np.array(1.0)}, "q: float64[], allowed: float64[4]"),
        ({"q": np.ones(4, np.float32)}, "q: float32[4], allowed: float64[4]"),
        ({"q": np.array([0.0, 0.9, 1.1, 0.9])}, "q, allowed: from 0 to 1"),
        ({"q": np.array([0.0, 0.9, math.nan, 0.9])}, "q, allowed: from 0 to 1"),
        ({"noise_rate": 0.5}, "noise_rate: 0.5, allowed: 0.25, the share of q below 0.5"),
        ({"noise_rate": math.nan}, "noise_rate: nan, allowed: 0.25"),
        ({"q": np.zeros(0)}, "noise_rate: 0.25, allowed: 0.0"),
    ],
    ids=str,
)
def test_a_stored_verdict_that_no_client_reached_is_refused_in_one_line(method, changes, words):
    state = dataclasses.replace(Verdict.of(np.array([0.1, 0.9, 0.9, 0.9])), **changes)
    with pytest.raises(InputError, match=re.escape(words)) as told:
        METHODS[method].check_client(state, tiny.context(own=tiny.shard(4)))
    assert "\n" not in str(told.value)


@pytest.mark.slow
@pytest.mark.parametrize("method", KEEPING)
def test_a_stopped_run_measures_the_same_verdicts(stopped, finished, method):
    folder, whole = stopped(after=3, checkpoint_every=2, method=method), finished(method=method)
    resume(folder)
    for name in ("rounds.jsonl", "weights.safetensors", "clients.json"):
        assert (folder / name).read_bytes() == (whole.folder / name).read_bytes()
    last = whole.rounds[-1]
    figures = (last.mislabel_accuracy, last.mislabel_auc, last.mislabel_calibration_error, last.estimated_noise)
    assert None not in figures and any(client.estimated_rate is not None for client in whole.clients)
    assert not (whole.folder / "losses.json").exists(), "there are no running means of losses"


@pytest.mark.parametrize("method", KEEPING)
def test_a_damaged_verdict_is_refused_before_anything_changes(stopped, method):
    folder = stopped(after=3, checkpoint_every=2, method=method)
    path = min((folder / "checkpoint" / "clients").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    before = (folder / "rounds.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=f"client state .*{path.name}: cannot be read: damaged"):
        resume(folder)
    assert (folder / "rounds.jsonl").read_bytes() == before


@pytest.mark.parametrize("forget", ["given", "oracle"])
def test_a_rate_that_is_no_estimate_is_no_verdict(finished, forget):
    run = finished(method="coteaching", forget=forget, forget_rate=0.3)
    assert all(record.estimated_noise is None and record.mislabel_accuracy is None for record in run.rounds)
    assert all(client.estimated_rate is None for client in run.clients)
