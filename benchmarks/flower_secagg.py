"""Flower's SecAgg+ in one process: the installed `flwr`'s own workflow as server, its own mod in every client.

Run unchanged are `SecAggPlusWorkflow.__call__` and, for each message that it sends, `secaggplus_mod`, with Flower's own
keys, shares, ciphers, masks, quantiser and records. Stood in for, and left out of the CPU time, is what surrounds them
in a deployment: the grid hands messages over as objects (no serialisation, no transport), every client's training
result is ready made, and the strategy hands the sum back without averaging n equal copies of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Parameters,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition
from flwr.common.secure_aggregation.quantization import quantize
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.compat.common import recorddict_compat
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.primitives.asymmetric import generate_key_pairs, private_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

CLIPPING, LEVELS, MODULUS = 8.0, 2**22, 2**32
"""Flower's defaults"""
SERVER_NODE = 1_000_000
"""of the identity that messages are sent under; clients are the nodes from 1"""
logging.getLogger("flwr").setLevel(logging.ERROR)


def add_mask(vector: NDArray[np.int64], key: bytes) -> NDArray[np.int64]:
    """One mask made and added, as the mod does it."""
    return parameters_addition([vector], pseudo_rand_gen(key, MODULUS, [vector.shape]))[0]


def quantise(values: NDArray[np.float32]) -> NDArray[np.int32]:
    """Clip and round, without the weighting that the mod does before."""
    return quantize([values], CLIPPING, LEVELS)[0]


def new_key() -> bytes:
    """A private key as the mod shares it."""
    return private_key_to_bytes(generate_key_pairs()[0])


def split_key(key: bytes, clients: int, threshold: int) -> list[bytes]:
    """Shares of a private key."""
    return create_shares(key, threshold, clients)


def secure_round(
    values: list[NDArray[np.float32]],
    weights: list[int],
    *,
    largest_weight: int,
    shares: int,
    threshold: int,
    dropped: Iterable[int] = (),
) -> tuple[NDArray[np.float64], float]:
    """A whole round: the weighted mean, and the CPU seconds of all clients and the server.

    Args:
        values: of each client.
        weights: of each client.
        largest_weight: the most that any may be.
        shares: k + 1, of each secret.
        threshold: t.
        dropped: clients that are gone before they upload.
    """
    grid = _Grid(values, weights, frozenset(dropped))
    strategy = _Strategy(len(values))
    context = LegacyContext(_context(), strategy=strategy, client_manager=_Manager(len(values)))  # type: ignore
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    model = recorddict_compat.parameters_to_arrayrecord(ndarrays_to_parameters([np.zeros(1)]), True)
    context.state.array_records[MAIN_PARAMS_RECORD] = model
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, SERVER_NODE
    workflow = SecAggPlusWorkflow(
        shares,
        threshold,
        max_weight=float(largest_weight),
        clipping_range=CLIPPING,
        quantization_range=LEVELS,
        modulus_range=MODULUS,
    )
    started = time.process_time()
    workflow(grid, context)
    seconds = time.process_time() - started - grid.outside
    return parameters_to_ndarrays(strategy.sum)[0], seconds


def _context() -> Context:
    return Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})


class _Grid:
    """Hands every message to its client's mod; `outside` is the CPU time of what is not Flower's protocol."""

    def __init__(self, values: list[NDArray[np.float32]], weights: list[int], dropped: frozenset[int]) -> None:
        self._values, self._weights, self._dropped = values, weights, dropped
        self._contexts = [_context() for _ in values]
        self.outside = 0.0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Flower's call to the wire: every client that is there answers through Flower's mod."""
        replies = []
        for message in messages:
            client = message.metadata.dst_node_id - 1
            stage = message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]
            if client not in self._dropped or stage in (Stage.SETUP, Stage.SHARE_KEYS):
                replies.append(secaggplus_mod(self._delivered(message), self._contexts[client], self._trained))
        return replies

    def _delivered(self, message: Message) -> Message:
        """A copy, since the mod takes what it was sent apart and set-up goes to everybody as one object."""
        started = time.process_time()
        content = RecordDict(dict(message.content))
        content[RECORD_KEY_CONFIGS] = ConfigRecord(dict(message.content.config_records[RECORD_KEY_CONFIGS]))
        copy = Message(content, metadata=message.metadata)  # type: ignore
        self.outside += time.process_time() - started
        return copy

    def _trained(self, message: Message, context: Context) -> Message:
        started = time.process_time()
        client = message.metadata.dst_node_id - 1
        parameters = ndarrays_to_parameters([self._values[client]])
        result = FitRes(Status(Code.OK, ""), parameters, self._weights[client], {})
        reply = Message(recorddict_compat.fitres_to_recorddict(result, True), reply_to=message)
        self.outside += time.process_time() - started
        return reply


class _Proxy:
    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class _Manager:
    def __init__(self, clients: int) -> None:
        self._clients = clients

    def num_available(self) -> int:
        return self._clients


class _Strategy:
    """Takes every client, and keeps the sum that the workflow puts into every result."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self.sum = Parameters([], "")

    def configure_fit(self, server_round: int, parameters: Parameters, manager: Any) -> list[tuple[_Proxy, FitIns]]:
        return [(_Proxy(client + 1), FitIns(parameters, {})) for client in range(self._clients)]

    def aggregate_fit(
        self, server_round: int, results: list[tuple[_Proxy, FitRes]], failures: list[Any]
    ) -> tuple[None, dict[str, Any]]:
        """Flower's call with the unmasked sum, which is kept for the check."""
        self.sum = results[0][1].parameters
        return None, {}
