"""`fedgr-secure methods`: what can be run, and what leaves a client for it."""

from __future__ import annotations

import json
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedgr_secure.app.output import Output
from fedgr_secure.app.tables import METHOD_NAMES
from fedgr_secure.baseline_sections import UNPRIVATE
from fedgr_secure.context import Method
from fedgr_secure.registry import METHODS

_COLUMNS = ("Method", "Paper", "Stages", "Leaves the client", "Under a secure sum")


def rows() -> list[dict[str, Any]]:
    """Every method as plain values, for `--json`.

    `uploads` is null for a method that sends nothing but the model, `under_secure_sum` for one of which everything can
    travel under one, and `not_dp_sgd` for one whose weights can be trained by DP-SGD; else each is in words.
    """
    return [
        {
            "name": method.name,
            "paper": method.source,
            "stages": method.stages,
            "networks": method.networks,
            "uploads": method.uploads,
            "under_secure_sum": method.under_secure_sum,
            "not_dp_sgd": UNPRIVATE.get(method.name),
        }
        for method in METHODS.values()
    ]


def answer(*, as_json: bool) -> None:
    """Print the methods."""
    if as_json:
        Output().say(json.dumps(rows()))
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in _COLUMNS:
        table.add_column(heading, overflow="fold")
    for method in METHODS.values():
        name = f"{method.name} ({METHOD_NAMES.get(method.name, method.name)})"
        table.add_row(name, method.source, method.stages, leaves(method), method.under_secure_sum or "everything")
    Output().print(table)


def leaves(method: Method) -> str:
    """What leaves a client, in words."""
    if method.pooled:
        return "all data"
    model = "the model" if method.networks == 1 else f"{method.networks} networks"
    return model if method.uploads is None else f"{model}; {method.uploads}"
