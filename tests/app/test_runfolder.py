"""Run folders: what is written is read back, and what is damaged is named."""

import dataclasses

import pytest
from run_folders import (
    MIXTURE,
    PROXIES,
    WEIGHTS,
    edit,
    make_clients,
    make_config,
    make_folder,
    make_losses,
    make_rounds,
    make_summary,
)

from fedgr_secure.app.runfolder import read_run
from fedgr_secure.errors import InputError
from fedgr_secure.records import RoundTiming


class TestReading:
    def test_everything_written_is_read_back(self, tmp_path):
        run = read_run(make_folder(tmp_path / "run"))
        assert run.rounds == tuple(make_rounds())
        assert run.summary == make_summary()
        assert run.clients == tuple(make_clients())
        assert run.timings[2] == RoundTiming(2, {"observe": 0.2, "train": 0.9, "evaluate": 0.1})
        assert run.losses is not None and run.losses.mixture == MIXTURE
        assert run.losses.clean == tuple(make_losses()["clean"])
        assert run.claims == (WEIGHTS, PROXIES)
        assert run.config.federation == make_config().federation
        assert run.manifest.parameters == 12345

    def test_fedavg_has_no_losses_and_no_mixture(self, tmp_path):
        run = read_run(make_folder(tmp_path / "run", "fedavg"))
        assert run.losses is None and run.rounds[0].mixture is None

    def test_an_unfinished_run_takes_its_claims_from_the_manifest(self, tmp_path):
        run = read_run(make_folder(tmp_path / "run", finished=False))
        assert run.summary is None and run.clients == () and run.losses is None
        assert run.claims == (WEIGHTS, PROXIES)

    def test_a_run_before_its_first_round(self, tmp_path):
        folder = make_folder(tmp_path / "run", finished=False)
        (folder / "rounds.jsonl").unlink()
        (folder / "timings.jsonl").unlink()
        assert read_run(folder).rounds == ()

    def test_the_torn_last_line_of_an_unfinished_run_is_not_a_round(self, tmp_path):
        folder = make_folder(tmp_path / "run", finished=False)
        text = (folder / "rounds.jsonl").read_text()
        (folder / "rounds.jsonl").write_text(text[:-40])
        assert len(read_run(folder).rounds) == 11


class TestDamage:
    def test_missing_folder(self, tmp_path):
        with pytest.raises(InputError, match="none does not exist"):
            read_run(tmp_path / "none")

    def test_a_file_is_no_folder(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(InputError, match="is not a folder"):
            read_run(tmp_path / "file")

    def test_a_folder_without_manifest(self, tmp_path):
        with pytest.raises(InputError, match=r"no manifest\.json"):
            read_run(tmp_path)

    def test_a_finished_run_needs_its_rounds(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        (folder / "rounds.jsonl").unlink()
        with pytest.raises(InputError, match=r"rounds\.jsonl: the file is missing"):
            read_run(folder)

    @pytest.mark.parametrize("finished", [True, False])
    def test_a_damaged_line_is_named(self, tmp_path, finished):
        folder = make_folder(tmp_path / "run", finished=finished)
        lines = (folder / "rounds.jsonl").read_text().split("\n")
        lines[4] = lines[4][:-9]
        (folder / "rounds.jsonl").write_text("\n".join(lines))
        with pytest.raises(InputError, match=r"rounds\.jsonl, line 5: damaged JSON"):
            read_run(folder)

    def test_a_torn_last_line_of_a_finished_run_is_damage(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        (folder / "timings.jsonl").write_text((folder / "timings.jsonl").read_text()[:-5])
        with pytest.raises(InputError, match=r"timings\.jsonl, line 12: damaged JSON"):
            read_run(folder)

    def test_the_line_within_a_json_file_is_named(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        (folder / "summary.json").write_text('{\n"method": "fedgr",\n"seed": }\n')
        with pytest.raises(InputError, match=r"summary\.json, line 3"):
            read_run(folder)

    @pytest.mark.parametrize(
        ("name", "changes", "message"),
        [
            ("manifest.json", {"schema": 2}, "schema 2, allowed: 1"),
            ("manifest.json", {"device": None}, "device: None, allowed: str"),
            ("manifest.json", {"config": {"rounds": 3}}, "unknown key 'rounds'"),
            ("manifest.json", {"privacy": [{}]}, "is missing"),
            ("summary.json", {"seconds": "long"}, "seconds: 'long', allowed: float"),
            ("summary.json", {"rounds": True}, "rounds: True, allowed: int"),
            ("summary.json", {"extra": 1}, "unknown key 'extra'"),
            ("summary.json", {"accuracy_best": float("nan")}, "line 1: NaN, allowed: finite"),
            ("losses.json", {"clean": [1, 2]}, "allowed: one edge more than counts"),
            ("losses.json", {"edges": [0.0] * 41}, "rising"),
            ("losses.json", {"edges": [-1e308, *range(39), 1e308]}, r"-1e\+308 to 1e\+308, allowed: a finite span"),
            ("losses.json", {"clean": [-5] * 40}, "-5 samples in a bin, allowed: a whole number from 0"),
            ("losses.json", {"clean": [2**80] * 40}, "allowed: int of at most 64 bits"),
        ],
    )
    def test_a_wrong_value_is_named(self, tmp_path, name, changes, message):
        folder = make_folder(tmp_path / "run")
        edit(folder / name, **changes)
        with pytest.raises(InputError, match=message) as error:
            read_run(folder)
        assert str(folder / name) in str(error.value)

    def test_an_epsilon_never_travels_alone(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        alone = dataclasses.asdict(PROXIES) | {"delta": None}
        edit(folder / "summary.json", privacy=[alone])
        with pytest.raises(InputError, match=r"epsilon 1\.0 alone"):
            read_run(folder)

    def test_rounds_rise(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        lines = (folder / "rounds.jsonl").read_text().split("\n")
        (folder / "rounds.jsonl").write_text("\n".join([*lines[:5], lines[3], *lines[5:]]))
        with pytest.raises(InputError, match="round 3 after round 4"):
            read_run(folder)

    def test_not_text(self, tmp_path):
        folder = make_folder(tmp_path / "run")
        (folder / "clients.json").write_bytes(b"[\n\xff\xfe]")
        with pytest.raises(InputError, match=r"clients\.json, line 2: is not UTF-8"):
            read_run(folder)
