"""Every runner gives the replies and states that plain calls by hand give, and says where an error came from."""

from abc import ABC, abstractmethod

import numpy as np
import pytest

from fedgr_secure.errors import DivergedError
from fedgr_secure.federation.federation import prepare
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.runner import DebugRunner, SequentialRunner
from fedgr_secure.messages import Train, Update
from fedgr_secure.method.messages import Observe, Revise
from fedgr_secure.training import TrainingTask
from fedgr_secure.wire import WireError, to_bytes

CLIENTS = (0, 2, 3)


class Probe:
    """A client half that keeps what it was asked, and answers or raises what it was told to."""

    def __init__(self, answer):
        self.state, self.asked, self._answer = None, [], answer

    def answer(self, message):
        self.asked.append(message)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Crash(Exception):
    """A client's own error."""


class RunnerContract(ABC):
    """What every client runner promises."""

    @abstractmethod
    def make(self, bench, messages):
        """The runner under test."""

    @pytest.fixture
    def federation(self, tiny, tmp_path):
        """Gives equal federations, each with new client halves."""
        return lambda **changes: prepare(tiny(**changes), RunFolder(tmp_path / "unused"))

    def ask(self, federation, halves, message):
        runner = self.make(federation.bench, federation.method.messages)
        return runner.run(halves, dict.fromkeys(halves, message), round=message.round)

    @staticmethod
    def halves(federation):
        return {k: federation.method.client(federation.context(k), None) for k in CLIENTS}

    @staticmethod
    def by_hand(federation, halves, message):
        replies = {}
        for client, half in halves.items():
            reply = half.answer(message)
            replies[client] = reply.finish(federation.bench.train(reply)) if isinstance(reply, TrainingTask) else reply
        return replies

    @pytest.mark.parametrize("changes", [{"method": "fedgr"}, {"method": "fedprox"}], ids=str)
    def test_replies_and_states_are_those_of_calls_by_hand(self, federation, changes):
        one, other = federation(**changes), federation(**changes)
        start = one.server.state.weights
        if one.method.name == "fedgr":
            messages = [Observe(0, start), Revise(0, None, None, None, None), Revise(2, start, None, None, None)]
        else:
            messages = [Train(0, start), Train(2, start)]
        halves, by_hand = self.halves(one), self.halves(other)
        for message in messages:
            replies, wanted = self.ask(one, halves, message), self.by_hand(other, by_hand, message)
            assert {k: to_bytes(reply) for k, reply in replies.items()} == {k: to_bytes(r) for k, r in wanted.items()}
            for client in CLIENTS:
                if by_hand[client].state is not None:
                    assert to_bytes(halves[client].state) == to_bytes(by_hand[client].state)

    def test_only_who_has_a_message_is_asked_and_replies_keep_the_order_of_the_messages(self, federation):
        halves = {client: Probe(Update(4, 1, {"w": np.full(2, client, np.float32)})) for client in (1, 2, 3)}
        runner = self.make(federation().bench, (Train, Update))
        replies = runner.run(halves, {client: Train(4, {}) for client in (3, 1)}, round=4)
        assert list(replies) == [3, 1]
        assert [float(replies[client].weights["w"][0]) for client in (3, 1)] == [3.0, 1.0]
        assert [len(halves[client].asked) for client in (1, 2, 3)] == [1, 0, 1]

    def test_an_error_keeps_its_type_and_names_client_round_and_stage(self, federation):
        runner = self.make(federation().bench, (Train, Update))
        halves = {1: Probe(Update(4, 1, {})), 3: Probe(Crash("out of tea"))}
        with pytest.raises(Crash, match="out of tea") as caught:
            runner.run(halves, {client: Train(4, {}) for client in halves}, round=4)
        assert caught.value.__notes__ == ["client 3, round 4, stage Train"]


class TestSequentialRunner(RunnerContract):
    def make(self, bench, messages):
        return SequentialRunner(bench)


class TestDebugRunner(RunnerContract):
    def make(self, bench, messages):
        return DebugRunner(bench, messages)

    def test_messages_reach_the_other_side_as_copies_made_from_bytes(self, federation):
        message, reply = Train(4, {"w": np.ones(2, np.float32)}), Update(4, 1, {"w": np.ones(2, np.float32)})
        half = Probe(reply)
        replies = self.make(federation().bench, (Train, Update)).run({1: half}, {1: message}, round=4)
        assert to_bytes(half.asked[0]) == to_bytes(message)
        assert half.asked[0].weights["w"] is not message.weights["w"]
        assert replies[1].weights["w"] is not reply.weights["w"]

    def test_a_message_that_the_method_does_not_declare_is_refused(self, federation):
        runner = self.make(federation().bench, (Train,))
        with pytest.raises(WireError, match="message type: Update, allowed: Train"):
            runner.run({1: Probe(Update(4, 1, {}))}, {1: Train(4, {})}, round=4)

    @pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")
    @pytest.mark.parametrize("start", [np.float32(1e38), np.float32("nan")])
    def test_numbers_that_stop_being_finite_are_reported_where_it_happens(self, federation, start):
        one = federation(method="fedavg", lr=1e6)
        broken = {name: np.full_like(value, start) for name, value in one.server.state.weights.items()}
        with pytest.raises(DivergedError) as caught:
            self.ask(one, self.halves(one), Train(5, broken))
        said = "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert "client 0, round 5, stage Train" in said
