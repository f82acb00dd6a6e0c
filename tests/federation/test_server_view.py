"""The server's view: what was sent is read back, "uploads" leaves the clients' weights out."""

import numpy as np
import pytest

from fedgr_secure.errors import InputError
from fedgr_secure.federation.view import ServerView, ViewRecorder
from fedgr_secure.messages import Update
from fedgr_secure.method.messages import Observe, Proxies, Revise
from fedgr_secure.registry import METHODS
from fedgr_secure.wire import WireError, to_bytes

KINDS = (Observe, Proxies, Revise, Update)


def record(folder, level, rounds=(0, 1, 11)):
    recorder = ViewRecorder(folder, level)
    for round in rounds:
        weights = {"w": np.full(2, round, np.float32)}
        recorder.sent(round, None, "Observe", to_bytes(Observe(round, weights)))
        for client in (0, 12, 3):
            upload = {"proxies": np.full(3, client, np.float32)}
            recorder.received(round, client, "Proxies", to_bytes(Proxies(round, upload)))
            q = np.full(3, 0.5)
            recorder.sent(round, client, "Revise", to_bytes(Revise(round, None, None, q, 0.25)))
            recorder.received(round, client, "Update", to_bytes(Update(round, 3, weights)))
    return recorder


def test_all_of_it_is_read_back_in_order(tmp_path):
    record(tmp_path / "view", "all")
    view = ServerView(tmp_path / "view", KINDS)
    assert view.rounds() == [0, 1, 11]
    for round in view.rounds():
        seen = view.messages(round)
        assert [(type(s.message).__name__, s.up, s.client) for s in seen] == [
            ("Observe", False, None),
            *(("Proxies", True, client) for client in (0, 3, 12)),
            *(("Revise", False, client) for client in (0, 3, 12)),
            *(("Update", True, client) for client in (0, 3, 12)),
        ]
        assert all(s.round == s.message.round == round for s in seen)
        assert seen[0].message.weights["w"].tolist() == [round, round]
        assert [s.message.upload["proxies"][0] for s in seen[1:4]] == [0, 3, 12]
        assert seen[4].message.noise_rate == 0.25


def test_messages_of_one_type_alone(tmp_path):
    record(tmp_path / "view", "all")
    seen = ServerView(tmp_path / "view", KINDS).messages(1, [Revise, Observe])
    assert [type(s.message) for s in seen] == [Observe, Revise, Revise, Revise]


def test_uploads_leave_the_clients_weights_out(tmp_path):
    record(tmp_path / "view", "uploads")
    kinds = {type(s.message) for s in ServerView(tmp_path / "view", KINDS).messages(0)}
    assert kinds == {Observe, Proxies, Revise}
    assert not list((tmp_path / "view").rglob("*Update*"))


def test_off_writes_nothing(tmp_path):
    record(tmp_path / "view", "off").forget_from(0)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_forgets_the_rounds_that_it_does_again(tmp_path):
    recorder = record(tmp_path / "view", "all")
    recorder.forget_from(1)
    assert ServerView(tmp_path / "view", KINDS).rounds() == [0]
    recorder.forget_from(0)
    assert ServerView(tmp_path / "view", KINDS).rounds() == []


def test_a_view_that_was_not_recorded_says_how_to_record_one(tmp_path):
    with pytest.raises(InputError, match=r"view does not exist; record one with --record-view uploads"):
        ServerView(tmp_path / "view", KINDS).rounds()


STRAY = [
    "notes.txt",
    ".DS_Store",
    "round-x",
    "round-0000001.bak",
    "round-12",
    "Proxies.up.3.bak",
    "Proxies.up.-1",
    "a.b",
]


def test_what_no_recorder_wrote_is_neither_read_nor_removed(tmp_path):
    recorder = record(tmp_path / "view", "all", rounds=(0, 1))
    view = ServerView(tmp_path / "view", KINDS)
    before = [len(view.messages(round)) for round in (0, 1)]
    for place in (tmp_path / "view", tmp_path / "view" / "round-0000001"):
        for name in STRAY:
            (place / name).write_text("mine")
    (tmp_path / "view" / "round-0000007").write_text("a file")
    (tmp_path / "view" / "round-0000001" / "Proxies.up.99").mkdir()
    assert view.rounds() == [0, 1]
    assert [len(view.messages(round)) for round in view.rounds()] == before
    recorder.forget_from(0)
    assert not (tmp_path / "view" / "round-0000000").exists()
    left = {path.name for path in (tmp_path / "view").iterdir()}
    assert left == {*STRAY, "round-0000007", "round-0000001"}
    assert {path.name for path in (tmp_path / "view" / "round-0000001").iterdir()} == {*STRAY, "Proxies.up.99"}


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", r"Proxies\.up\.3: not a record"),
        (b"\xff" * 99, r"Proxies\.up\.3: not a record"),
        (to_bytes(Proxies(0, {})), r"Proxies\.up\.3: holds Proxies of round 0, allowed: Proxies of round 1"),
        (to_bytes(Update(1, 1, {})), r"Proxies\.up\.3: holds Update of round 1, allowed: Proxies of round 1"),
    ],
)
def test_a_message_that_is_damaged_or_another_than_its_name_says_is_refused_by_file(tmp_path, data, named):
    record(tmp_path / "view", "all")
    (tmp_path / "view" / "round-0000001" / "Proxies.up.3").write_bytes(data)
    with pytest.raises(InputError, match=named):
        ServerView(tmp_path / "view", KINDS).messages(1)


def test_a_round_that_was_not_recorded_is_refused(tmp_path):
    record(tmp_path / "view", "all")
    with pytest.raises(InputError, match="view holds no round 5"):
        ServerView(tmp_path / "view", KINDS).messages(5)


def test_a_view_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "view").write_text("in the way")
    with pytest.raises(InputError, match="round-0000000: cannot be made"):
        record(tmp_path / "view", "all")


def test_a_message_type_that_the_method_does_not_have_is_refused(tmp_path):
    record(tmp_path / "view", "all")
    with pytest.raises(WireError, match="message type: Observe, allowed: Update"):
        ServerView(tmp_path / "view", (Update,)).messages(0, [Observe])


@pytest.mark.parametrize("decide_at", ["client", "server"])
def test_a_run_records_exactly_the_bytes_that_its_records_count(finished, decide_at):
    result = finished(record_view="all", decide_at=decide_at)
    view = ServerView(result.folder / "view", METHODS["fedgr"].messages)
    assert view.rounds() == [record.round for record in result.rounds]
    for record in result.rounds:
        up = down = 0
        for seen in view.messages(record.round):
            size = len(to_bytes(seen.message))
            up += size if seen.up else 0
            down += 0 if seen.up else size * (len(record.cohort) if seen.client is None else 1)
        assert (up, down) == (record.bytes_up, record.bytes_down)


def test_recording_does_not_change_a_run(finished):
    plain, recorded, uploads = finished(), finished(record_view="all"), finished(record_view="uploads")
    assert not (plain.folder / "view").exists()
    assert not list((uploads.folder / "view").rglob("*Update*"))
    texts = {(result.folder / "rounds.jsonl").read_text() for result in (plain, recorded, uploads)}
    assert len(texts) == 1
