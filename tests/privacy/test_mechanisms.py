"""Grid and noise: integers of the right distribution, from the right source, that nobody else has."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from privacy import mechanisms
from privacy.errors import PrivacyError
from privacy.mechanisms import Grid, InsecureSeededNoise, Noise, SystemNoise

DRAWS = 6000
SEEN_ONCE_IN = 1e-6
"""a p-value below rejects; the right noise of the system, which has no seed, fails a test once in a million runs"""


def seeded(seed=0):
    return InsecureSeededNoise(np.random.default_rng(seed))


def pmf(kind, scale):
    """The integers that matter and their probabilities."""
    x = np.arange(-math.ceil(45 * scale), math.ceil(45 * scale) + 1)
    weights = np.exp(-np.abs(x) / scale) if kind == "laplace" else np.exp(-((x / scale) ** 2) / 2)
    return x, weights / weights.sum()


def p_value(draws, kind, scale):
    """Of a chi-square test in some twenty groups of neighbouring integers of about equal probability."""
    x, probability = pmf(kind, scale)
    group = (20 * (probability.cumsum() - probability / 2)).astype(int)
    group = np.unique(group, return_inverse=True)[1]
    seen = np.bincount(group[np.clip(draws, x[0], x[-1]) - x[0]], minlength=group.max() + 1)
    return chisquare(seen, np.bincount(group, probability) * len(draws)).pvalue


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 600.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("source", [SystemNoise(), seeded()], ids=["system", "seeded"])
def test_noise_has_the_right_scale_and_no_other(source, kind, scale):
    for factor, right in ((1, True), (2 / 3, False), (3 / 2, False)):
        draws = Noise(kind, factor * scale).draw(DRAWS, source)
        assert draws.dtype == np.int64
        assert draws.shape == (DRAWS,)
        assert (p_value(draws, kind, scale) > SEEN_ONCE_IN) == right


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("source", [SystemNoise(), seeded()], ids=["system", "seeded"])
def test_draws_are_independent_of_their_neighbours_and_of_earlier_draws(source, kind):
    noise = Noise(kind, 50.0)
    first, second = noise.draw(4000, source), noise.draw(4000, source)
    for one, other in ((first, second), (first[1:], first[:-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(4000)
        assert (one == other).mean() < 0.05


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_seed_repeats_its_noise_and_another_does_not(kind):
    noise = Noise(kind, 1000.0)
    assert (noise.draw(50, seeded(3)) == noise.draw(50, seeded(3))).all()
    assert (noise.draw(50, seeded(3)) != noise.draw(50, seeded(4))).any()


FORK = """
import json, os, sys
import privacy.mechanisms as m
lazy = "opendp" not in sys.modules
draw = lambda: [m.Noise(kind, 2.0**40).draw(4, m.SystemNoise()).tolist() for kind in ("laplace", "gaussian")]
before = draw()
end, start = os.pipe()
if os.fork() == 0:
    os.write(start, json.dumps(draw()).encode())
    os._exit(0)
print(json.dumps([lazy, before, draw(), json.loads(os.read(end, 10_000))]))
"""


def test_processes_share_no_noise_and_opendp_is_imported_when_first_needed():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    lazy, *draws = json.loads(done.stdout)
    assert lazy
    here = [Noise(kind, 2.0**40).draw(4, SystemNoise()).tolist() for kind in ("laplace", "gaussian")]
    numbers = [number for draw in [*draws, here] for kind in draw for number in kind]
    assert len(set(numbers)) == len(numbers) == 32  # of 2**40 and more that are likely


def test_only_the_system_backs_a_claim():
    assert SystemNoise().secure
    assert not seeded().secure
    assert repr(seeded()) == "InsecureSeededNoise(...)"


def test_large_vectors_are_drawn_in_chunks(monkeypatch):
    monkeypatch.setattr(mechanisms, "CHUNK", 4)
    draws = Noise("laplace", 2.0**30).draw(11, SystemNoise())
    assert draws.shape == (11,)
    assert len(set(draws.tolist())) == 11
    assert np.abs(draws).max() < 2**36
    assert Noise("laplace", 1.0).draw(0, SystemNoise()).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_million_draws(kind):
    draws = Noise(kind, 5.0).draw(10**6, SystemNoise())
    assert draws.var() == pytest.approx(Noise(kind, 5.0).variance, rel=0.02)


def test_measurements_of_opendp_are_built_once():
    mechanisms._measurement.cache_clear()
    for _ in range(3):
        Noise("gaussian", 2.5).draw(2, SystemNoise())
    assert mechanisms._measurement.cache_info().misses == 1


@pytest.mark.parametrize("scale", [0.001, 0.3, 1.0, 5.0, 600.0])
def test_the_variance_is_exact_for_the_laplace_and_an_upper_bound_for_the_gaussian(scale):
    for kind in ("laplace", "gaussian"):
        x, probability = pmf(kind, scale)
        exact = float((probability * x.astype(float) ** 2).sum())
        variance = Noise(kind, scale).variance
        assert exact <= variance * (1 + 1e-9)
        if kind == "laplace" or scale >= 1:
            assert variance == pytest.approx(exact, rel=1e-6)


def test_losses_become_the_nearest_grid_points():
    grid = Grid(largest=4.0, steps=8)
    losses = [0.0, 0.24, 0.26, 3.99, 4.0, 4.01, 1e300, math.inf, math.nan, -0.1, -math.inf]
    indices = grid.indices(np.array(losses))
    assert indices.dtype == np.int64
    assert indices.tolist() == [0, 0, 1, 8, 8, 8, 8, 8, 8, 0, 0]
    assert grid.values(indices[:4]).tolist() == [0.0, 0.0, 0.5, 4.0]


def test_noisy_integers_off_the_grid_have_values():
    assert Grid(largest=4.0, steps=8).values(np.array([-3, 20])).tolist() == [-1.5, 10.0]
    assert Grid(largest=4.0).values([]).shape == (0,)


@given(
    st.floats(1e-300, 1e300),
    st.integers(1, 2**20),
    st.lists(st.floats(), min_size=1, max_size=20),
)
def test_no_loss_moves_by_more_than_the_steps_of_the_grid(largest, steps, losses):
    grid = Grid(largest, steps)
    indices = grid.indices(losses)
    assert ((indices >= 0) & (indices <= steps)).all()
    clipped = np.clip(np.where(np.isnan(losses), largest, losses), 0, largest)
    assert (np.abs(grid.values(indices) - clipped) <= largest / steps * 0.5001).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Grid(0.0), "largest loss of the grid: 0.0, allowed: finite nats above 0"),
        (lambda: Grid(-1.0), "largest loss of the grid: -1.0"),
        (lambda: Grid(math.inf), "largest loss of the grid: inf"),
        (lambda: Grid(math.nan), "largest loss of the grid: nan"),
        (lambda: Grid("4"), "largest loss of the grid: '4'"),
        (lambda: Grid(4.0, 0), "steps of the grid: 0, allowed: an integer from 1 to 1048576"),
        (lambda: Grid(4.0, 2**20 + 1), "steps of the grid: 1048577"),
        (lambda: Grid(4.0, 8.0), "steps of the grid: 8.0"),
        (lambda: Grid(4.0).values(np.array([0.5])), "indices of the grid: of type float64, allowed: integers"),
        (lambda: Noise("uniform", 1.0), "kind of noise: 'uniform', allowed: laplace or gaussian"),
        (lambda: Noise("laplace", 0.0), "scale of laplace noise: 0.0, allowed: 0.001 to"),
        (lambda: Noise("gaussian", math.nan), "scale of gaussian noise: nan"),
        (lambda: Noise("gaussian", 2.0**41), "scale of gaussian noise: 2199023255552.0"),
        (lambda: Noise("gaussian", True), "scale of gaussian noise: True"),
        (lambda: Noise("laplace", 1.0).draw(-1, seeded()), "size of noise: -1, allowed: an integer from 0"),
        (lambda: SystemNoise().gaussian(math.inf, 2), "scale of noise: inf"),
        (lambda: seeded().laplace(1.0, 2.5), "size of noise: 2.5"),
        (lambda: seeded().gaussian(-1.0, 2), "scale of noise: -1.0"),
        (lambda: InsecureSeededNoise(7), "generator of insecure noise: a int, allowed: a numpy Generator"),
    ],
)
def test_what_is_no_noise_is_refused_in_one_line(call, message):
    with pytest.raises(PrivacyError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
