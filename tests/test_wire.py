"""The wire: what goes in comes out, and bytes from a stranger raise nothing but `WireError`."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save

from fedgr_secure.baselines.centroids import AskCentroids, Centroids, TrainNear
from fedgr_secure.baselines.class_losses import ClassLosses, Measure
from fedgr_secure.baselines.correction import (
    AskDimension,
    CorrClientState,
    CorrState,
    Dimension,
    Estimate,
    NoiseLevel,
    TrainStage,
)
from fedgr_secure.baselines.fedavg import ServerState
from fedgr_secure.baselines.feddiv import DivState
from fedgr_secure.baselines.fedelc import ELCState
from fedgr_secure.baselines.fedfixer import FixerState
from fedgr_secure.baselines.fednoro import NoRoState, TrainAs
from fedgr_secure.baselines.filters import FitFilter, LocalFilter, Refine
from fedgr_secure.baselines.rofl import RoFLState
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.client import FedGRState
from fedgr_secure.method.messages import Counted, Observe, Proxies, Revise
from fedgr_secure.method.server import FedGRServerState
from fedgr_secure.method.sieve import Mixture, Verdict
from fedgr_secure.registry import METHODS
from fedgr_secure.wire import WireError, from_bytes, to_bytes

KINDS = tuple(
    {
        kind.__name__: kind
        for method in METHODS.values()
        for kind in (*method.messages, method.client_state, method.server_state)
        if kind is not None
    }.values()
)

DTYPES = [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64]
ROUNDS = st.integers(0, 10**9)
NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
VARIANCES = st.floats(1e-12, 1e12)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def any_array():
    return st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, SHAPES))


def vector(dtype):
    return arrays.arrays(dtype, st.integers(0, 6))


def weights():
    return st.dictionaries(NAMES, any_array(), max_size=4)


@st.composite
def mixtures(draw, mean=FINITE, variance=VARIANCES):
    means = sorted(draw(st.tuples(mean, mean)))
    share = draw(st.floats(0, 1))
    variances = draw(st.tuples(variance, variance))
    return Mixture(tuple(means), variances, (share, 1 - share), draw(st.booleans()), draw(st.none() | st.text()))


def filters():
    return mixtures(st.floats(0, 1e39), st.floats(1e-6, 1e78))


@st.composite
def class_losses(draw):
    counts = draw(arrays.arrays(np.int64, st.integers(1, 6), elements=st.integers(0, 9)))
    counts[0] += not counts.any()
    losses = draw(arrays.arrays(np.float64, counts.shape, elements=st.floats(0, 1e39)))
    return ClassLosses(draw(ROUNDS), np.where(counts > 0, losses, 0.0), counts)


@st.composite
def centroids(draw):
    """Class centroids, of absent classes 0, and which classes are present."""
    values = draw(arrays.arrays(np.float32, (3, 2), elements=st.floats(-1, 1, width=32)))
    present = draw(arrays.arrays(np.bool_, 3))
    return np.where(present[:, None], values, np.float32(0)), present


SHARES = arrays.arrays(np.float64, st.integers(0, 6), elements=st.floats(0, 1))
RECORDS = {
    Train: st.builds(Train, ROUNDS, weights()),
    Update: st.builds(Update, ROUNDS, st.integers(1, 10**6), weights()),
    Observe: st.builds(Observe, ROUNDS, weights()),
    Proxies: st.builds(Proxies, ROUNDS, weights()),
    Counted: st.builds(Counted, ROUNDS, vector(np.int64), vector(np.int64)),
    Revise: st.builds(
        Revise, ROUNDS, st.none() | weights(), st.none() | mixtures(), st.none() | SHARES, st.none() | st.floats(0, 1)
    ),
    FedGRState: st.builds(
        FedGRState,
        ROUNDS,
        ROUNDS,
        vector(np.float64),
        ROUNDS,
        vector(np.int64),
        vector(np.float64),
        FINITE,
        vector(np.int64),
        weights(),
    ),
    FedGRServerState: st.builds(FedGRServerState, weights(), weights(), st.none() | mixtures(), weights(), weights()),
    ServerState: st.builds(ServerState, weights()),
    Measure: st.builds(Measure, ROUNDS, weights()),
    ClassLosses: class_losses(),
    TrainAs: st.builds(TrainAs, ROUNDS, weights(), st.booleans()),
    NoRoState: st.builds(NoRoState, weights(), weights(), weights()),
    ELCState: st.builds(ELCState, arrays.arrays(np.float32, SHAPES)),
    FixerState: st.builds(FixerState, weights()),
    FitFilter: st.builds(FitFilter, ROUNDS, weights(), st.none() | filters()),
    LocalFilter: st.builds(LocalFilter, ROUNDS, st.integers(1, 10**6), st.none() | filters()),
    Refine: st.builds(Refine, ROUNDS, st.none() | mixtures()),
    Verdict: st.builds(Verdict, vector(np.float64), FINITE),
    DivState: st.builds(DivState, weights(), weights(), weights()),
    TrainNear: centroids().flatmap(lambda pair: st.builds(TrainNear, ROUNDS, weights(), *map(st.just, pair))),
    AskCentroids: st.builds(AskCentroids, ROUNDS),
    Centroids: centroids().flatmap(lambda pair: st.builds(Centroids, ROUNDS, *map(st.just, pair))),
    RoFLState: centroids().flatmap(lambda pair: st.builds(RoFLState, weights(), *map(st.just, pair))),
    Estimate: st.builds(Estimate, ROUNDS, weights()),
    NoiseLevel: st.builds(NoiseLevel, ROUNDS, st.floats(0, 1)),
    TrainStage: st.builds(TrainStage, ROUNDS, weights(), st.floats(0, 1e300), st.booleans()),
    AskDimension: st.builds(AskDimension, ROUNDS),
    Dimension: st.builds(Dimension, ROUNDS, st.floats(0, 1e30)),
    CorrClientState: st.builds(CorrClientState, vector(np.int64), st.booleans()),
    CorrState: st.builds(CorrState, weights(), weights(), weights()),
}


def equal(left, right):
    """Equal records, with arrays equal in shape, dtype and bytes (a NaN equals itself)."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return list(left) == list(right) and all(equal(left[key], right[key]) for key in left)
    if dataclasses.is_dataclass(left):
        return all(equal(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    return left == right


def test_every_type_of_the_registry_is_covered():
    assert set(RECORDS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_round_trip(kind, data):
    record = data.draw(RECORDS[kind])
    assert equal(from_bytes(to_bytes(record), KINDS), record)


def test_non_contiguous_and_big_endian_arrays_keep_their_values():
    upload = {"transposed": np.arange(6.0).reshape(2, 3).T, "every second": np.arange(9)[::2]}
    got = from_bytes(to_bytes(Proxies(0, upload | {"big": np.array([1.5, -2.0], ">f4")})), [Proxies]).upload
    assert all(np.array_equal(got[name], value) for name, value in upload.items())
    assert got["big"].tolist() == [1.5, -2.0]


def test_what_comes_back_is_writable_and_its_own():
    record = Proxies(0, {"a": np.zeros(3)})
    got = from_bytes(to_bytes(record), [Proxies])
    got.upload["a"][0] = 1.0
    assert record.upload["a"][0] == 0.0


# what cannot be written


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_scalar_that_is_not_finite_is_not_written(number):
    state = FedGRState(0, 0, np.zeros(1), 0, np.zeros(0, np.int64), np.ones(1), number, np.zeros(1, np.int64), {})
    with pytest.raises(WireError, match=r"FedGRState cannot be written"):
        to_bytes(state)


@pytest.mark.parametrize(
    "record",
    [
        Proxies({1}, {}),
        Proxies(0, {"text": np.array(["a"])}),
        Proxies(0, {"object": np.array([None])}),
        Proxies(0, {"complex": np.array([1j])}),
        Proxies(0, {1: np.zeros(1)}),
        Proxies(0, {"\ud800": np.zeros(1)}),
    ],
    ids=["set", "text", "object", "complex", "integer key", "surrogate"],
)
def test_a_field_of_another_kind_is_not_written(record):
    with pytest.raises(WireError):
        to_bytes(record)


# what cannot be read

EMPTY_REVISE = {"round": 1, "weights": None, "mixture": None, "q": None, "noise_rate": None}


def raw(kind, fields, tensors=None):
    """A record's bytes, put together by hand; `fields` is a dict or the JSON text of one."""
    text = fields if isinstance(fields, str) else json.dumps(fields)
    return save(tensors or {}, {"record": f'{{"type": {json.dumps(kind)}, "fields": {text}}}'})


def test_the_hand_made_bytes_are_good_when_nothing_is_wrong():
    one = np.ones(1)
    assert equal(from_bytes(raw("Revise", EMPTY_REVISE), KINDS), Revise(1, None, None, None, None))
    got = from_bytes(raw("Proxies", {"round": 1, "upload": {"arrays": ["a"]}}, {"upload/a": one}), KINDS)
    assert equal(got, Proxies(1, {"a": one}))


def test_an_unknown_type_is_named_with_the_allowed_ones():
    with pytest.raises(WireError, match=r"message type: Train, allowed: Observe, Proxies"):
        from_bytes(to_bytes(Train(0, {})), [Proxies, Observe])


ONE = np.ones(1, np.float32)
BAD = {
    "missing plain field": ("Proxies", {"upload": {"arrays": []}}, {}),
    "missing array field": ("FedGRServerState", {"weights": {"arrays": []}}, {}),
    "missing array of a dict": ("Proxies", {"round": 1, "upload": {"arrays": ["a"]}}, {}),
    "extra plain field": ("Proxies", {"round": 1, "upload": {"arrays": []}, "labels": 3}, {}),
    "extra dict field": ("Proxies", {"round": 1, "upload": {"arrays": []}, "labels": {"arrays": []}}, {}),
    "extra tensor": ("Proxies", {"round": 1, "upload": {"arrays": []}}, {"labels": ONE}),
    "extra tensor in a dict": (
        "Proxies",
        {"round": 1, "upload": {"arrays": ["a"]}},
        {"upload/a": ONE, "upload/b": ONE},
    ),
    "a tensor for a number": ("Proxies", {"upload": {"arrays": []}}, {"round": ONE}),
    "a dict for a number": ("Proxies", {"round": {"arrays": []}, "upload": {"arrays": []}}, {}),
    "a tensor for a dict": ("Proxies", {"round": 1}, {"upload": ONE}),
    "a number for a dict": ("Proxies", {"round": 1, "upload": 2}, {}),
    "null for a dict": ("Proxies", {"round": 1, "upload": None}, {}),
    "a list for an array": ("Revise", EMPTY_REVISE | {"q": [1.0]}, {}),
    "a dict for an array": ("Revise", EMPTY_REVISE | {"q": {"arrays": []}}, {}),
    "a field twice": ("Revise", EMPTY_REVISE, {"q": ONE}),
    "an array twice": ("Proxies", {"round": 1, "upload": {"arrays": ["a", "a"]}}, {"upload/a": ONE}),
    "array names in a string": ("Proxies", {"round": 1, "upload": {"arrays": "a"}}, {"upload/a": ONE}),
    "array names of another type": ("Proxies", {"round": 1, "upload": {"arrays": [1]}}, {"upload/1": ONE}),
    "a float for an integer": ("Proxies", {"round": 1.0, "upload": {"arrays": []}}, {}),
    "a bool for an integer": ("Proxies", {"round": True, "upload": {"arrays": []}}, {}),
    "text for a float": ("Revise", EMPTY_REVISE | {"noise_rate": "0.5"}, {}),
    "NaN": ("Revise", json.dumps(EMPTY_REVISE | {"noise_rate": math.nan}), {}),
    "Infinity": ("Revise", json.dumps(EMPTY_REVISE | {"noise_rate": -math.inf}), {}),
    "a float beyond the range": ("Revise", json.dumps(EMPTY_REVISE).replace('e": null}', 'e": 1e999}'), {}),
    "an integer beyond the range": ("Revise", EMPTY_REVISE | {"noise_rate": 10**400}, {}),
    "no samples": ("Update", {"round": 1, "samples": 0, "weights": {"arrays": []}}, {}),
    "a mixture that is none": ("Revise", EMPTY_REVISE | {"mixture": {"means": [0.0, 1.0]}}, {}),
    "an invalid mixture": (
        "Revise",
        EMPTY_REVISE
        | {"mixture": {"means": [2, 1], "variances": [1, 1], "weights": [0.5, 0.5], "all_clean": False, "note": None}},
        {},
    ),
    "fields as a number": ("Proxies", "3", {}),
    "fields that nest without end": ("Proxies", "[" * 100_000, {}),
    "a value that nests without end": ("Proxies", '{"round": ' + "[" * 100_000 + "]" * 100_000 + "}", {}),
}


@pytest.mark.parametrize("case", BAD)
def test_a_record_that_does_not_fit_its_type_is_refused(case):
    kind, fields, tensors = BAD[case]
    with pytest.raises(WireError):
        from_bytes(raw(kind, fields, tensors), KINDS)


def test_a_shape_beyond_the_index_range_is_refused():
    header = (
        '{"__metadata__":{"record":"{}"},"a":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}}'
    )
    with pytest.raises(WireError):
        from_bytes(len(header).to_bytes(8, "little") + header.encode(), KINDS)


SAMPLES = [
    Train(3, {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "count": np.array(4)}),
    Update(3, 12, {"w": np.ones((2, 2), np.float32), "none": np.zeros((0, 3))}),
    Observe(1, {"w": np.ones(3, np.float16)}),
    Proxies(1, {"proxies": np.linspace(0, 4, 7, dtype=np.float32)}),
    Revise(1, None, Mixture((0.1, 2.0), (0.2, 0.3), (0.5, 0.5), note="x"), None, None),
    Revise(1, {"w": np.ones(2)}, None, np.array([0.5, 1.0]), 0.25),
    FedGRState(
        2, 3, np.ones(3), 1, np.array([5, -2, 0]), np.ones(3), 0.5, np.array([1, -1, 0]), {"w": np.ones(2, np.float32)}
    ),
    FedGRServerState({"w": np.ones(2, np.float32)}, {"7": np.ones(3, np.float32)}, None, {}, {"7": np.array(2)}),
    ServerState({"w": np.ones(2, np.float32)}),
]


def test_every_truncation_is_refused():
    for record in SAMPLES:
        data = to_bytes(record)
        for size in range(len(data)):
            with pytest.raises(WireError):
                from_bytes(data[:size], KINDS)


def mutate(data, draw):
    """Flip, replace, insert, delete, repeat or swap some bytes."""
    data = bytearray(data)
    for _ in range(draw.integers(1, 4)):
        place, kind = int(draw.integers(len(data))), draw.integers(6)
        if kind == 0:
            data[place] ^= 1 << int(draw.integers(8))
        elif kind == 1:
            data[place] = int(draw.integers(256))
        elif kind == 2:
            data.insert(place, int(draw.choice(list(b'0123456789"{}[]:,-.eE\\ntf'))))
        elif kind == 3:
            del data[place]
        elif kind == 4:
            data[place:place] = data[place : place + int(draw.integers(1, 20))]
        else:
            other = int(draw.integers(len(data)))
            data[place], data[other] = data[other], data[place]
    if draw.integers(2):  # keep the header's length right, so that more mutants get past the first check
        end = data.rfind(b"}}")
        data[:8] = max(0, end + 2 - 8).to_bytes(8, "little")
    return bytes(data)


def survives(data):
    """Whether bytes are read as a record; anything but a record or a `WireError` escapes."""
    try:
        return type(from_bytes(data, KINDS)) in KINDS
    except WireError:
        return False


def test_two_thousand_mutants_give_a_record_or_a_wire_error():
    draw = np.random.default_rng(0)
    clean = [to_bytes(record) for record in SAMPLES]
    read = sum(survives(mutate(clean[i % len(clean)], draw)) for i in range(2000))
    assert 0 < read < 1000, "some mutants only change a value; most must be refused"


ODD = [None, True, 0, -1, 10**400, 1e308, "", "x", [], [[]], {}, {"arrays": []}, {"arrays": ["w"]}, {"arrays": 3}]


def test_odd_values_in_the_header_give_a_record_or_a_wire_error():
    """Every plain value of every sample, at any depth, replaced by every odd value."""
    tried = 0
    for record in SAMPLES:
        data = to_bytes(record)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        fields = json.loads(header["__metadata__"]["record"])
        for changed in replacements(fields):
            header["__metadata__"]["record"] = json.dumps(changed)
            text = json.dumps(header).encode()
            survives(len(text).to_bytes(8, "little") + text + data[8 + size :])
            tried += 1
    assert tried > 1000


def replacements(tree):
    """Every copy of a JSON tree in which one node is an odd value."""
    yield from ODD
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield {k: v for k, v in tree.items() if k != key}
            yield from ({**tree, key: changed} for changed in replacements(value))
    elif isinstance(tree, list):
        for i, value in enumerate(tree):
            yield from ([*tree[:i], changed, *tree[i + 1 :]] for changed in replacements(value))


@pytest.mark.parametrize("record", [None, 3, {"round": 1}, Update], ids=["None", "int", "dict", "type"])
def test_what_is_no_record_cannot_be_written(record):
    with pytest.raises(WireError, match="allowed: a dataclass"):
        to_bytes(record)
