"""How a cohort's clients are run: one after the other, or slowly and checked. The results are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fedgr_secure.context import ClientHalf
from fedgr_secure.errors import DivergedError
from fedgr_secure.training import TrainingTask, Workbench
from fedgr_secure.wire import from_bytes, to_bytes


class ClientRunner(Protocol):
    """Carries messages to clients and their trainings out."""

    def run(self, halves: Mapping[int, ClientHalf], messages: Mapping[int, Any], *, round: int) -> dict[int, Any]:
        """The reply of every client that has a message, in the order of `messages`."""


@dataclass(frozen=True)
class SequentialRunner:
    """One client after the other in this process; messages pass by reference."""

    bench: Workbench

    def run(self, halves: Mapping[int, ClientHalf], messages: Mapping[int, Any], *, round: int) -> dict[int, Any]:
        """The reply of every client; an exception carries client, round and stage as a note."""
        replies = {}
        for client, message in messages.items():
            try:
                replies[client] = self._one(halves[client], message)
            except Exception as error:
                error.add_note(f"client {client}, round {round}, stage {type(message).__name__}")
                raise
        return replies

    def _one(self, half: ClientHalf, message: Any) -> Any:
        reply = half.answer(message)
        return reply.finish(self.bench.train(reply)) if isinstance(reply, TrainingTask) else reply


@dataclass(frozen=True)
class DebugRunner:
    """Sequential, with every message through bytes and back, autograd's anomaly detection, and losses checked."""

    bench: Workbench
    messages: tuple[type[Any], ...]

    def __post_init__(self) -> None:
        self.bench.check = True

    def run(self, halves: Mapping[int, ClientHalf], messages: Mapping[int, Any], *, round: int) -> dict[int, Any]:
        """The reply of every client."""
        decoded = {client: from_bytes(to_bytes(message), self.messages) for client, message in messages.items()}
        try:
            with torch.autograd.set_detect_anomaly(True):
                replies = SequentialRunner(self.bench).run(halves, decoded, round=round)
        except RuntimeError as error:
            if "returned nan values" not in str(error):
                raise
            raise DivergedError("; ".join([str(error), *error.__notes__])) from error
        return {client: from_bytes(to_bytes(reply), self.messages) for client, reply in replies.items()}
