"""Shadow federations: balanced halves, the run's settings, and real ones that tell members from others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.lira import label_column, lira_offline, lira_online, logit_confidence
from attacks.metrics import evaluate
from attacks.models import predictor, sent_models
from attacks.shadows import Labelled, draw_halves, train_shadows
from attacks.view import open_view
from fedgr_secure.errors import InputError
from fedgr_secure.federation import loop
from fedgr_secure.federation.federation import load


@given(st.integers(2, 40), st.integers(1, 9), st.integers(0, 10**6))
def test_every_candidate_is_in_half_of_the_shadows_and_every_shadow_holds_half(count, shadows, seed):
    inside = draw_halves(count, shadows, seed=seed)
    assert inside.shape == (shadows, count) and inside.dtype == np.bool_
    assert (abs(inside.sum(1) - count / 2) <= 0.5).all()
    often = inside.sum(0)
    assert (often == shadows / 2).all() if shadows % 2 == 0 else (abs(often - shadows / 2) == 0.5).all()
    np.testing.assert_array_equal(inside, draw_halves(count, shadows, seed=seed))


def test_halves_are_drawn_anew_for_every_seed_and_pair():
    inside = draw_halves(40, 4, seed=0)
    assert (inside[0] != inside[2]).any() and (inside != draw_halves(40, 4, seed=1)).any()
    often = np.mean([draw_halves(9, 1, seed=seed)[0] for seed in range(400)], axis=0)
    assert (abs(often - 4 / 9) < 4 * np.sqrt(20 / 81 / 400)).all(), "nobody is favoured"


def scene(config):
    """The pool and the test images of a configuration, by what its clients hold."""
    data, truth = load(config)
    images, labels = (
        np.concatenate([get(s) for s in data.shards]) for get in (lambda s: s.images(), lambda s: s.labels)
    )
    test = truth.test.take(np.arange(len(truth.test)))
    return data.spec, Labelled(images, labels), Labelled(test, truth.test_labels)


def watched(monkeypatch):
    """The configurations of the shadows that are run, and their data."""
    seen = []

    def run(config):
        with np.load(config.data.path) as file:
            seen.append((config, dict(file)))
        return loop.run(config)

    monkeypatch.setattr("attacks.shadows.run", run)
    return seen


@pytest.mark.parametrize("method", ["fedavg", "fedgr"])
def test_shadows_are_the_run_on_their_halves(tiny, monkeypatch, method):
    seen, config = watched(monkeypatch), tiny(method=method, rounds=2)
    spec, pool, test = scene(config)
    found = train_shadows(config, spec, pool, test, shadows=3, seed=4, population=test.images[:7])
    assert found.candidates.shape == (3, 120, 10) and found.population.shape == (3, 7, 10)
    np.testing.assert_allclose(np.exp(found.candidates).sum(-1), 1.0)
    np.testing.assert_array_equal(found.inside, draw_halves(120, 3, seed=4))
    for half, (own, file) in zip(found.inside, seen, strict=True):
        np.testing.assert_array_equal(file["x_train"][..., 0], pool.images[half][:, 0])
        np.testing.assert_array_equal(file["y_train"], pool.labels[half])
        same = ("method", "partition", "model", "training", "federation", "dropouts", "fedgr", "fedprox", "dp_sgd")
        assert all(getattr(own, name) == getattr(config, name) for name in same)
        assert own.noise.label_noise == "none", "the labels are wrong already"
    assert len({own.seed for own, _ in seen}) == 3
    assert not any(path.exists() for own, _ in seen for path in (own.data.path, own.output.out, own.data.path.parent))
    again = train_shadows(config, spec, pool, test, shadows=3, seed=4, population=test.images[:7])
    np.testing.assert_array_equal(again.candidates, found.candidates)


def test_private_channels_and_sums_are_kept_and_repeat(tiny, monkeypatch):
    seen = watched(monkeypatch)
    config = tiny(method="fedgr", rounds=3, channel="histogram", secagg=True, clients=4, cohort=4)
    spec, pool, test = scene(config)
    once, twice = (train_shadows(config, spec, pool, test, shadows=1).candidates for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    own = seen[0][0]
    assert own.proxies.channel == "histogram" and own.secure_sum.secagg
    assert own.proxies.noise == own.secure_sum.entropy == "insecure-seeded", "no entropy of the system is spent"


@pytest.mark.slow
def test_a_memorising_federation_is_found_out(tiny):
    config = tiny(method="fedavg", width=8, clients=2, cohort=2, rounds=4, local_epochs=12, batch_size=8, rho_min=0.5)
    spec, pool, test = scene(config)
    shadows = train_shadows(config, spec, pool, test, shadows=6, seed=1)
    own, inside = shadows.candidates[0], shadows.inside[0]  # one is attacked with the help of those of the other pairs
    confidence, others = logit_confidence(own, pool.labels), logit_confidence(shadows.candidates[2:], pool.labels)
    for attack in (lira_online, lira_offline):
        found = evaluate(attack(confidence, others, shadows.inside[2:]), inside)
        assert found.auc.low > 0.6, found.auc
    assert evaluate(label_column(own, pool.labels), inside).auc.low > 0.6


def test_the_predictor_computes_what_the_run_measured(finished):
    result = finished(method="fedgr", record_view="uploads")
    view = open_view(result.folder)
    config = loop.RunFolder(result.folder).config()
    spec, _, test = scene(config)
    predict, models = predictor(config, spec), list(sent_models(view).values())
    assert len(models) == 4 and not any((models[0][name] == models[1][name]).all() for name in models[0])
    for record, weights in zip(result.rounds, [*models[1:], result.weights], strict=True):
        log_p = predict(weights, test.images)
        assert (log_p.argmax(1) == test.labels).mean() == pytest.approx(record.accuracy)
        assert -label_column(log_p, test.labels).mean() == pytest.approx(record.test_loss, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "config_changes", "words"),
    [
        ({"shadows": 0}, {}, r"^shadows: 0 of 120"),
        ({"pool": lambda p: Labelled(p.images[:9], p.labels)}, {}, r"^pool: uint8\[9, 1, 8, 8\] for labels \[120\]"),
        ({"pool": lambda p: Labelled(p.images / 255, p.labels)}, {}, r"^pool: float64\[120"),
        ({"test": lambda t: Labelled(t.images[:, 0], t.labels)}, {}, r"^test: uint8\[60, 8, 8\]"),
        ({"pool": lambda p: Labelled(p.images, p.labels % 2), "test": lambda t: Labelled(t.images, t.labels % 2)}, {},
         r"^test labels: 2 classes, allowed: 10"),
        ({}, {"clients": 100}, r"^clients: 100, allowed: from 1 to 60"),
        ({}, {"partition": "file", "partition_file": "__file__"}, r"^partition: file, allowed for shadows"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_shadow_is_refused(tiny, changes, config_changes, words):
    spec, pool, test = scene(tiny())
    path = {name: Path(value) for name, value in config_changes.items() if name == "partition_file"}
    arguments = {"pool": changes.get("pool", lambda p: p)(pool), "test": changes.get("test", lambda t: t)(test)}
    with pytest.raises(InputError, match=words):
        train_shadows(tiny(**config_changes | path), spec, **arguments, shadows=changes.get("shadows", 1))


@pytest.mark.parametrize("natural", [False, True])
def test_images_are_as_natural_as_the_run_s_whatever_a_file_s_channels_suggest(tiny, monkeypatch, natural):
    seen, config = watched(monkeypatch), tiny(method="fedavg", rounds=1)
    spec, pool, test = scene(config)
    coloured = [Labelled(np.repeat(part.images, 3, axis=1), part.labels) for part in (pool, test)]
    for channels, parts in ((1, (pool, test)), (3, coloured)):
        train_shadows(config, replace(spec, natural=natural, channels=channels), *parts, shadows=1)
        views = seen[-1][0].views
        assert (views.flip, views.baseline_view) == (natural, "weak" if natural else "plain")
