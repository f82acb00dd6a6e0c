"""The shipped configurations, by name."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from pathlib import Path

from fedgr_secure.config import read_toml
from fedgr_secure.errors import InputError, nearest
from fedgr_secure.sections import Config


def names() -> list[str]:
    """The presets' names, sorted."""
    return sorted(
        path.name.removesuffix(".toml")
        for path in files("fedgr_secure.presets").iterdir()
        if path.name.endswith(".toml")
    )


def load(name: str) -> Config:
    """A configuration by preset name or by the path of a TOML file.

    Raises:
        InputError: neither a preset nor a readable file, or its content is not allowed.
    """
    if name in names():
        with as_file(files("fedgr_secure.presets") / f"{name}.toml") as path:
            return read_toml(path)
    if not os.path.exists(name):  # unlike Path's, never raises: a name may be too long for the system
        raise InputError(
            f"config: {name} is neither a file nor a preset{nearest(name, names())}; presets: {', '.join(names())}"
        )
    return read_toml(Path(name))
