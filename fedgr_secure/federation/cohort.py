"""Cohorts: who is drawn in a round, and how the server half talks to them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedgr_secure.context import ClientHalf
from fedgr_secure.errors import InputError
from fedgr_secure.federation.runner import ClientRunner
from fedgr_secure.federation.view import ViewRecorder
from fedgr_secure.messages import Update
from fedgr_secure.randomness import Randomness
from fedgr_secure.wire import to_bytes


def draw_cohort(round: int, *, clients: int, size: int, warmup: int, randomness: Randomness) -> tuple[int, ...]:
    """The clients of a round, sorted (docs/method.md, 'Before round alpha').

    During the warm-up a random permutation of all clients is cut into ceil(clients / size) cohorts of nearly equal size
    (never larger than `size`) and reshuffled when used up; afterwards `size` clients are drawn uniformly without
    replacement. A pure function of its arguments.
    """
    if round < warmup:
        cohorts = -(-clients // size)
        sweep, position = divmod(round, cohorts)
        order = randomness.numpy("cohort sweep", round=sweep).permutation(clients)
        drawn = np.array_split(order, cohorts)[position]
    else:
        drawn = randomness.numpy("cohort", round=round).choice(clients, size, replace=False)
    return tuple(sorted(int(client) for client in drawn))


@dataclass
class Cohort:
    """This round's clients. What passes between them and the server is counted here, and recorded on request.

    Attributes:
        round: the round's number.
        halves: the client halves by client number.
        runner: how the clients are run.
        recorder: where the server's view is recorded.
        bytes_up, bytes_down: serialised sizes of all messages so far.
        seconds: wall seconds by message type.
        updates: local models received.
    """

    round: int
    halves: Mapping[int, ClientHalf]
    runner: ClientRunner
    recorder: ViewRecorder
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    updates: int = 0

    def ask(self, message: Any, *, expect: type[Any] = Update) -> dict[int, Any]:
        """Send one message to every client (or each its own, by client number); their replies in client order.

        Raises:
            InputError: a reply is of another type than `expect`, or answers another round.
        """
        started = time.perf_counter()
        each = message if isinstance(message, Mapping) else dict.fromkeys(sorted(self.halves), message)
        name = type(next(iter(each.values()))).__name__.lower()
        self._count_down(message, each)
        replies = self.runner.run(self.halves, each, round=self.round)
        for client, reply in replies.items():
            if not isinstance(reply, expect) or reply.round != self.round:
                raise InputError(
                    f"client {client}, round {self.round}: answered {type(reply).__name__}, "
                    f"allowed: {expect.__name__} of this round"
                )
            data = to_bytes(reply)
            self.bytes_up += len(data)
            self.updates += isinstance(reply, Update)
            self.recorder.received(self.round, client, type(reply).__name__, data)
        self.seconds[name] += time.perf_counter() - started
        return replies

    def _count_down(self, message: Any, each: Mapping[int, Any]) -> None:
        if isinstance(message, Mapping):
            for client, one in each.items():
                data = to_bytes(one)
                self.bytes_down += len(data)
                self.recorder.sent(self.round, client, type(one).__name__, data)
        else:
            data = to_bytes(message)
            self.bytes_down += len(data) * len(each)
            self.recorder.sent(self.round, None, type(message).__name__, data)
