"""The progress bar: silent off a terminal, and showing the round's figures on one."""

import io
import re

import pytest
from rich.console import Console
from run_folders import make_rounds

from fedgr_secure.app.progress import LiveProgress


def terminal(width=80):
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def shown(console):
    """Everything written to the terminal, without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_nothing_is_printed_off_a_terminal():
    file = io.StringIO()
    with LiveProgress(12, "FedGR", console=Console(file=file)) as progress:
        for record in make_rounds():
            progress(record)
    assert file.getvalue() == ""


def test_the_last_round_is_shown_on_a_terminal():
    console = terminal()
    with LiveProgress(12, "FedGR on digits", console=console) as progress:
        for record in make_rounds():
            progress(record)
    text = shown(console)
    last = make_rounds()[-1]
    assert "FedGR on digits" in text and "round 12/12" in text
    assert f"accuracy {100 * last.accuracy:.1f}%" in text
    assert "estimated noise 42.0%" in text and "Pearson 0.92" in text  # 0.4 + 0.01 * (11 % 3), 1 - 1/12
    assert "elapsed" in text and "left" in text


def test_what_does_not_apply_is_left_out():
    console = terminal()
    with LiveProgress(12, "FedAvg", console=console) as progress:
        progress(make_rounds("fedavg")[0])
    assert "round 1/12" in shown(console) and "accuracy 15.0%" in shown(console)
    assert "Pearson" not in shown(console) and "noise" not in shown(console)


def test_a_resumed_run_starts_where_it_was():
    console = terminal()
    with LiveProgress(12, "FedGR", console=console, completed=7) as progress:
        pass
    assert "round 7/12" in shown(console)
    console = terminal()
    with LiveProgress(12, "FedGR", console=console, completed=7) as progress:
        progress(make_rounds()[7])
    assert "round 8/12" in shown(console)


@pytest.mark.parametrize("title", ["[bold] digits [/nothing]", "100% {x}"])
def test_a_title_is_text(title):
    console = terminal(120)
    with LiveProgress(3, title, console=console):
        pass
    assert title in shown(console)


def test_it_fits_into_80_columns():
    console = terminal()
    with LiveProgress(500, "FedProx on clothing1m", console=console) as progress:
        progress(make_rounds()[-1])
    assert all(len(line.split("\r")[-1].rstrip()) <= 80 for line in shown(console).split("\n"))
    assert "…" not in shown(console)


def test_the_time_left_is_known_when_rounds_are_slow():
    """Rounds of 90 s, 3 of 12 done: the other 9 take 13 min 30 s."""
    now = [0.0]
    console = terminal()
    console.get_time = lambda: now[0]
    with LiveProgress(12, "FedGR", console=console) as progress:
        for record in make_rounds()[:3]:
            now[0] += 90.0
            progress(record)
    assert "0:04:30 elapsed, 0:13:30 left" in shown(console)


def test_an_error_passes_through():
    with pytest.raises(RuntimeError, match="stop"), LiveProgress(3, "FedGR", console=terminal()):
        raise RuntimeError("stop")
