"""What a secure sum costs here, next to Flower's SecAgg+ on the same machine in the same run.

Times are CPU seconds of this process, all clients and the server together, except "wall". Kernels are the best of
`--repeats` interleaved runs, rounds are run once, and every round's mean is checked. Left out on both sides: training,
transport, and here the long-term identities, which are made once and not per round.

* mask and add: here 16 masks onto one vector in one call, as a client with 16 neighbours does it, divided by 16; there
  `pseudo_rand_gen` and `parameters_addition` for one mask, as its mod does for each neighbour. The AES-256-CTR limit is
  `update_into` from one buffer to another of `masks.BLOCK` bytes, again and again.
* quantise: here `encode`, which also checks, clips, weights and counts; there `quantize`, which clips and rounds.
* split: here one 32-byte key; there `create_shares` of one private key, a PEM text of about 306 bytes.
* rounds: here `Wire` over `SecureSumClient` and `SecureSumServer`; there `benchmarks.flower_secagg`. k neighbours
  here, k + 1 shares (its own too) there.

A client's upload on the complete graph, when nobody vanishes, for one group of d means in 32-bit words: envelopes of 48
bytes on ADVERT (three keys or hashes of 32, a signature of 64), SHARES (a hash of 32; list head 4 and n - 1 boxes of
4 + 82; list head 4 and n times 4 + 64 of digests), MASKED (16 of weight and clip count, 4 d; list head 4, n - 1
times 4 + 32 of tags), CONFIRM (list head 4, n - 1 times 4 + 32) and UNMASK (list head 4, n times 4 + 34):

    5 x 48 + 160 + 40 + 20 + 8 + 158 (n - 1) + 106 n + 4 d = 4 d + 264 n + 310 bytes.
"""

from __future__ import annotations

import base64
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import numpy as np
import tyro
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.demands import COLUMNS, Row, faster, record
from privacy.secagg import (
    Contribution,
    Enrolment,
    Group,
    Identity,
    Layout,
    Parameters,
    Phase,
    Policy,
    SecureSumClient,
    SecureSumServer,
    SystemEntropy,
    Wire,
    sum_context,
)
from privacy.secagg.groups import encode
from privacy.secagg.masks import BLOCK, Mask, apply
from privacy.secagg.shamir import share_to_bytes, split

MILLION, RESNET18 = 1_000_000, 11_173_962
MASKS = 16
"""added in one call"""
COMPLETE = {10: 5.0, 50: 15.0, 100: 25.0}
"""clients of a round on the complete graph, and how many times as fast as Flower it is to be"""
LARGEST_WEIGHT = 10
CHECKED = 1e-4
"""how far a mean may be from the exact one; Flower's is within 1e-5"""
NOTE = (
    "CPU time of all clients and the server in one process, or of one call; *measured* is the other figure over ours, "
    "or what the row names. The docstring of `benchmarks/secure_sum.py` says what exactly is run."
)


@dataclass(frozen=True)
class SecureSum:
    """Cost of a secure sum."""

    parts: tuple[str, ...] = ()
    """only these: mask, threads, quantise, split, rounds, ring, thousand, upload (default: all)"""
    flower: bool = True
    """measure Flower's kernels too (needs the extra `flower`)"""
    flower_clients: tuple[int, ...] = (10,)
    """complete-graph rounds that are run with Flower too; 50 takes over a minute, 100 over seven"""
    flower_ring: bool = False
    """run the round with 62 neighbours with Flower too; over three minutes"""
    repeats: int = 15
    """of each kernel"""
    record: bool = True
    """write to benchmarks/results/; parts that were not run keep what was recorded for them with the same versions"""


# Kernels


def mask(options: SecureSum) -> list[Row]:
    """Masks made and added, against Flower's and against AES alone."""
    return [*_mask(options, MILLION, 4.0), *_mask(options, RESNET18, 6.0)]


def _mask(options: SecureSum, size: int, least: float) -> list[Row]:
    vector, masks = np.zeros(4 * size, np.uint8), _masks()
    actions: list[Callable[[], Any]] = [lambda: apply(vector, 0, masks), lambda: keystream(MASKS * vector.size)]
    if flower := _flower(options):
        wide, key = np.zeros(size, np.int64), base64.urlsafe_b64encode(os.urandom(32))
        actions.append(lambda: flower.add_mask(wide, key))
    ours, aes, *theirs = best(actions, options.repeats)
    name, millis = f"mask and add, d = {size:,}", 1e3 * ours / MASKS
    return [
        faster(name, millis, 1e3 * theirs[0] if theirs else None, "ms", least),
        faster(f"{name}: share of AES's speed", millis, 1e3 * aes / MASKS, "ms", 0.65, "AES-256-CTR"),
    ]


def _masks() -> list[Mask]:
    return [Mask(os.urandom(32), 1) for _ in range(MASKS)]


def keystream(size: int) -> None:
    """So many bytes of AES-256-CTR into one buffer, again and again."""
    cipher, zeros, buffer = Cipher(AES(os.urandom(32)), CTR(bytes(16))).encryptor(), bytes(BLOCK), bytearray(BLOCK)
    for _ in range(-(-size // BLOCK)):
        cipher.update_into(zeros, buffer)


def threads(options: SecureSum) -> list[Row]:
    """One thread against two, by wall time; means something on two idle cores only."""
    vector, masks = np.zeros(4 * RESNET18, np.uint8), _masks()
    actions = [lambda: apply(vector, 0, masks, threads=2), lambda: apply(vector, 0, masks, threads=1)]
    two, one = best(actions, options.repeats, clock=time.perf_counter)
    name = f"mask and add, d = {RESNET18:,}, two threads, wall"
    return [faster(name, 1e3 * two / MASKS, 1e3 * one / MASKS, "ms", 1.6, "one thread")]


def quantise(options: SecureSum) -> list[Row]:
    """Stochastic rounding."""
    flower = _flower(options)
    values, rounding = _values(MILLION, 1)[0], np.random.default_rng(0)
    layout = _layout(MILLION, clients=100)
    actions: list[Callable[[], Any]] = [lambda: encode(layout, {"w": values}, 7, rounding)]
    if flower:
        actions.append(lambda: flower.quantise(values))
    ours, *theirs = best(actions, options.repeats)
    return [faster(f"quantise, d = {MILLION:,}", 1e3 * ours, 1e3 * theirs[0] if theirs else None, "ms", 5.0)]


def split_key(options: SecureSum) -> list[Row]:
    """Shamir's shares of one key."""
    flower = _flower(options)
    secret, points, draw = int.from_bytes(os.urandom(32), "big"), range(1, 101), SystemEntropy().draw
    (ours,) = best([lambda: [share_to_bytes(share) for share in split(secret, points, 51, draw)]], options.repeats)
    theirs = 1e3 * best([lambda: flower.split_key(flower.new_key(), 100, 51)], 2)[0] if flower else None
    return [faster("Shamir split of one key, n = 100, t = 51", 1e3 * ours, theirs, "ms", 500.0)]


def best(
    actions: Sequence[Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """The least time of each; they take turns, so that a busy spell of the machine hits all of them."""
    seconds = [float("inf")] * len(actions)
    for _ in range(repeats):
        for index, action in enumerate(actions):
            started = clock()
            action()
            seconds[index] = min(seconds[index], clock() - started)
    return seconds


# Whole rounds


def rounds(options: SecureSum) -> list[Row]:
    """The complete graph."""
    rows = []
    for clients, least in COMPLETE.items():
        threshold = clients // 2 + 1
        parameters = Parameters(_layout(MILLION, clients=clients), clients - 1, threshold)
        theirs = clients in options.flower_clients
        name = f"whole round, n = {clients}, complete graph, d = {MILLION:,}"
        rows.append(_compared(options, name, parameters, frozenset(), least, theirs))
    return rows


def ring(options: SecureSum) -> list[Row]:
    """62 neighbours, and some who vanish before they upload."""
    dropped = _dropped(100, 10)
    parameters = Parameters(_layout(MILLION, clients=100), 62, 32)
    name = f"whole round, n = 100, k = 62, t = 32, 10 dropped, d = {MILLION:,}"
    return [_compared(options, name, parameters, dropped, 20.0, options.flower_ring)]


def thousand(options: SecureSum) -> list[Row]:
    """A thousand clients, a hundred of whom vanish before they upload."""
    layout, dropped = _layout(100_000, clients=1000), _dropped(1000, 100)
    values = _values(100_000, 4)
    rows = []
    for parameters, demand in ((Parameters(layout, 62, 32, absent=2), 25.0), (Parameters.for_cohort(layout), None)):
        seconds = secure_round(values, parameters, dropped)
        what = f"k = {parameters.neighbours}, t = {parameters.threshold}"
        name = f"whole round, n = 1000, {what}, 100 dropped, d = 100,000"
        rows.append(Row(name, seconds, None, "s", "", seconds, demand, "<"))
    return rows


def upload(options: SecureSum) -> list[Row]:
    """What each client sends for ResNet-18."""
    clients, sent = 100, dict.fromkeys(range(100), 0)

    def heard(from_server: bool, client: int, data: bytes) -> None:
        sent[client] += 0 if from_server else len(data)

    parameters = Parameters(_layout(RESNET18, clients=clients), clients - 1, clients // 2 + 1)
    seconds = secure_round(_values(RESNET18, 2), parameters, heard=heard)
    most, formula = max(sent.values()), 4 * RESNET18 + 264 * clients + 310
    beyond = max(abs(size - formula) for size in sent.values())
    name = f"upload of a client, n = {clients}, complete graph, d = {RESNET18:,}"
    return [
        Row(f"whole round, n = 100, complete graph, d = {RESNET18:,}", seconds, None, "s", "", seconds, None),
        Row(name, most, 4 * RESNET18, "bytes", "float32", most / (4 * RESNET18), 1.01, "<="),
        Row(f"{name}: off the closed formula", most, formula, "bytes", "formula", beyond, 0.0, "<="),
    ]


def _compared(
    options: SecureSum, name: str, parameters: Parameters, dropped: frozenset[int], least: float, theirs: bool
) -> Row:
    """One round here, and there when asked for."""
    values, clients = _values(parameters.layout.groups[0].size, 4), parameters.layout.clients
    ours = secure_round(values, parameters, dropped)
    flower = _flower(options) if theirs else None
    seconds = None
    if flower:
        contributed = [values[client % len(values)] for client in range(clients)]
        mean, seconds = flower.secure_round(
            contributed,
            [_weight(client) for client in range(clients)],
            largest_weight=LARGEST_WEIGHT,
            shares=parameters.neighbours + 1,
            threshold=parameters.threshold,
            dropped=dropped,
        )
        _check(mean, values, clients, dropped)
    return faster(name, ours, seconds, "s", least)


def secure_round(
    values: Sequence[NDArray[np.float32]],
    parameters: Parameters,
    dropped: Iterable[int] = (),
    heard: Callable[[bool, int, bytes], None] = lambda from_server, client, data: None,
) -> float:
    """CPU seconds of all clients and the server in one sum; client i has the values numbered i modulo their number."""
    numbers, gone = range(parameters.layout.clients), frozenset(dropped)
    identities = [Identity.generate(SystemEntropy()) for _ in numbers]
    enrolled = Enrolment({number: identities[number].public for number in numbers})
    given = [Contribution({"w": values[number % len(values)]}, np.random.default_rng(number)) for number in numbers]
    started = time.process_time()
    context = sum_context(b"benchmark", 0, "weights", parameters, b"model")
    clients = {
        number: SecureSumClient(
            number,
            identities[number],
            enrolled=enrolled,
            parameters=parameters,
            policy=Policy.of(parameters),
            context=context,
            weight=_weight(number),
        )
        for number in numbers
    }
    server = SecureSumServer(enrolled=enrolled, parameters=parameters, context=context)

    def vanishes(number: int, phase: Phase) -> bool:
        return phase >= Phase.MASK and number in gone

    total = Wire(server, clients, given.__getitem__, vanishes, heard).run()
    seconds = time.process_time() - started
    _check(total.means["w"], values, len(numbers), gone)
    return seconds


def _check(
    mean: NDArray[np.float64], values: Sequence[NDArray[np.float32]], clients: int, dropped: Iterable[int]
) -> None:
    """A figure of a sum that is wrong would be worth nothing."""
    weights = np.zeros(len(values))
    for client in set(range(clients)) - set(dropped):
        weights[client % len(values)] += _weight(client)
    exact = np.zeros(values[0].size)
    for weight, array in zip(weights / weights.sum(), values, strict=True):
        exact += weight * array
    off = float(np.abs(exact - mean).max())
    if not off <= CHECKED:
        raise SystemExit(f"the mean of a measured round is {off:.3g} from the exact one, allowed: {CHECKED:g}")


def _weight(client: int) -> int:
    return 1 + client % LARGEST_WEIGHT


def _layout(size: int, *, clients: int) -> Layout:
    return Layout((Group("w", size, limit=1.0),), clients, LARGEST_WEIGHT)


def _values(size: int, count: int) -> list[NDArray[np.float32]]:
    generator = np.random.default_rng(0)
    return [0.05 * generator.standard_normal(size, np.float32) for _ in range(count)]


def _dropped(clients: int, count: int) -> frozenset[int]:
    return frozenset(np.random.default_rng(1).choice(clients, count, replace=False).tolist())


def _flower(options: SecureSum) -> ModuleType | None:
    if not options.flower:
        return None
    try:
        from benchmarks import flower_secagg
    except ModuleNotFoundError as error:
        raise SystemExit(f"flower: {error.name} is not installed; pip install -e '.[flower]', or --no-flower") from None
    return flower_secagg


# The table


PARTS: dict[str, Callable[[SecureSum], list[Row]]] = {
    "mask": mask,
    "threads": threads,
    "quantise": quantise,
    "split": split_key,
    "rounds": rounds,
    "ring": ring,
    "thousand": thousand,
    "upload": upload,
}


def main() -> None:
    """Measure, print each row, record."""
    options = tyro.cli(SecureSum, description=__doc__)
    for name, given, allowed in (("parts", options.parts, PARTS), ("flower-clients", options.flower_clients, COMPLETE)):
        for unknown in [value for value in given if value not in allowed]:
            raise SystemExit(f"{name}: {unknown}, allowed: {', '.join(map(str, allowed))}")
    command = f"python -m benchmarks.secure_sum {shlex.join(sys.argv[1:])}".strip()
    rows: list[Row] = []
    for part in options.parts or PARTS:
        found = [Row(**{**asdict(row), "part": part, "command": command}) for row in PARTS[part](options)]
        for row in found:
            print(" | ".join(row.cells()), flush=True)
        rows += found
        if options.record:
            record("Secure sum", found, [*PARTS], NOTE)
    table = Table(*COLUMNS, title="Secure sum")
    for row in rows:
        table.add_row(*row.cells())
    Console().print(table)


if __name__ == "__main__":
    main()
