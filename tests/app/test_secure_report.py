"""The report's section on secure sums: what was opened, what was given up, and what each phase cost."""

import dataclasses

from run_folders import make_folder, make_rounds

from fedgr_secure.app.runfolder import read_run
from fedgr_secure.app.secure_report import secure_section
from fedgr_secure.records import RoundTiming, SumRecord

OPENED = SumRecord(9, 6, (0, 1), None, {"parameters": 3, "buffers": 1}, "system", {"mask": 4000}, {"mask": 500})
FAILED = dataclasses.replace(OPENED, survivors=(), aborted="2 clients left, <allowed>: from 6", clipped={})


def section(tmp_path, sums, **config):
    rounds = [
        dataclasses.replace(r, secure_sum=one) for r, one in zip(make_rounds(rounds=len(sums)), sums, strict=True)
    ]
    folder = make_folder(tmp_path / "run", rounds=len(sums))
    run = read_run(folder)
    timings = tuple(RoundTiming(r.round, {"train": 2.0, "secure sum: mask": 0.25}) for r in rounds)
    return secure_section(dataclasses.replace(run, rounds=tuple(rounds), timings=timings, summary=None))


def test_a_run_in_the_clear_has_no_such_section(tmp_path):
    assert section(tmp_path, [None, None]) == ""


def test_sums_that_were_opened(tmp_path):
    text = section(tmp_path, [OPENED, OPENED])
    # two rounds of two clients each, all in the sums; 2 * (3 + 1) coordinates clipped
    assert "2 of 2 sums were opened, over 4 of 4 updates" in text
    assert "9 neighbours at most, of whose shares 6 open a sum" in text
    assert "8 coordinates were beyond the public range and clipped" in text
    assert "8.0 kB" in text and "1.0 kB" in text, "bytes of all rounds, by phase"
    assert "0.5 s" in text or "500 ms" in text, "seconds of all rounds, by phase"


def test_sums_of_which_nothing_is_to_be_said_warn_of_nothing(tmp_path):
    assert "warn" not in section(tmp_path, [dataclasses.replace(OPENED, clipped={"parameters": 0})])


def test_sums_that_were_given_up_and_keys_from_a_seed_are_warned_of(tmp_path):
    seeded = dataclasses.replace(FAILED, entropy="insecure-seeded")
    text = section(tmp_path, [OPENED, seeded])
    assert "1 of 2 sums were opened, over 2 of 4 updates" in text
    assert "1 sums were given up" in text and "2 clients left, &lt;allowed&gt;: from 6" in text
    assert "a simulation that hides nothing" in text
