"""`fedgr-secure methods`, and that registry, settings and tables name the same methods."""

import json
from typing import get_args

import pytest

from fedgr_secure.app import cli, methods
from fedgr_secure.app.tables import METHOD_NAMES
from fedgr_secure.baseline_sections import UNPRIVATE, UNSUMMED
from fedgr_secure.registry import METHODS
from fedgr_secure.sections import Method


def printed(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["methods", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_names_agree_everywhere():
    assert set(get_args(Method)) == set(METHODS) == set(METHOD_NAMES)
    assert len(get_args(Method)) == len(METHODS)
    assert all(name == method.name for name, method in METHODS.items())
    assert UNSUMMED.keys() | UNPRIVATE.keys() <= METHODS.keys()


def test_every_message_that_leaves_a_client_is_told_of():
    for method in METHODS.values():
        beside = [kind.__name__ for kind in method.messages if kind.__name__ not in ("Train", "Update")]
        assert bool(method.uploads) == bool(beside), method.name


def test_what_cannot_be_summed_says_so_in_the_table():
    for name, why in UNSUMMED.items():
        assert METHODS[name].under_secure_sum == f"nothing: {why}"


def test_the_list_as_json(capsys):
    rows = {row["name"]: row for row in json.loads(printed(capsys, "--json"))}
    assert list(rows) == list(METHODS)
    assert rows["fedavg"] == {
        "name": "fedavg",
        "paper": "McMahan et al. 2017, AISTATS",
        "stages": "one: the given labels",
        "networks": 1,
        "uploads": None,
        "under_secure_sum": None,
        "not_dp_sgd": None,
    }
    assert "histogram" in rows["fedgr"]["uploads"] and "histograms" in rows["fedgr"]["under_secure_sum"]


def test_the_table_holds_every_word(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    text = printed(capsys)
    for method in METHODS.values():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{method.name} ")]
        told = (METHOD_NAMES[method.name], method.source, method.stages, methods.leaves(method))
        assert all(words in line for words in (*told, method.under_secure_sum or "everything"))
        assert ("all data" in methods.leaves(method)) == method.pooled
