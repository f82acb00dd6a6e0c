"""A run's configuration, read from TOML, changed by flat names, and written back. Imports neither torch nor numpy."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgr_secure.errors import InputError, nearest, require
from fedgr_secure.sections import Config
from fedgr_secure.typed import decode


def read_toml(path: Path) -> Config:
    """Read a configuration file; what it leaves out keeps its default.

    Raises:
        InputError: the file is missing, is not TOML, or holds a key or a value that is not allowed.
    """
    require(os.path.exists(path), f"config file: {path} does not exist")
    require(path.is_file(), f"config file: {path} cannot be read as TOML: it is not a file")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise InputError(f"config file: {path} cannot be read as TOML: it is nested too deeply") from None
    except (OSError, ValueError) as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise InputError(f"config file: {path} cannot be read as TOML: {error}") from None
    return from_table(table, where=str(path))


def from_table(table: dict[str, Any], *, where: str) -> Config:
    """Build a configuration from nested plain values, checking every key and type; the rest keeps its default."""
    config: Config = decode(Config, table, where, defaults=True)
    return config


def data_name(config: Config) -> str:
    """What the data is called in titles and folders: the data set, or the file's or folder's own name.

    >>> data_name(override(Config(), {"dataset": "npz", "path": Path("data/mnist.npz")}))
    'mnist'
    """
    own = config.data.dataset in ("npz", "folder") and config.data.path is not None
    return config.data.path.stem if own and config.data.path is not None else config.data.dataset


def default_folder(config: Config) -> Path:
    """Where a run without `--out` goes: `runs/METHOD-DATA-sSEED`."""
    return Path("runs") / f"{config.method}-{data_name(config)}-s{config.seed}"


def override(config: Config, changes: Mapping[str, Any]) -> Config:
    """A configuration with some settings changed, by their flat names (as on the command line).

    Raises:
        InputError: a name is not a setting.

    >>> override(Config(), {"rounds": 5, "seed": 3}).federation.rounds
    5
    """
    left = dict(changes)
    for part in dataclasses.fields(config):
        value = getattr(config, part.name)
        section_given = isinstance(left.get(part.name), type(value))
        if part.name in left and (section_given or not dataclasses.is_dataclass(value)):
            config = dataclasses.replace(config, **{part.name: left.pop(part.name)})
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = {inner.name for inner in dataclasses.fields(value)} & left.keys()
            section: Any = dataclasses.replace(value, **{name: left.pop(name) for name in names})
            config = dataclasses.replace(config, **{part.name: section})
    known = [f.name for s in dataclasses.fields(config) for f in (s, *_inner(getattr(config, s.name)))]
    for name in left:
        raise InputError(f"setting: unknown name {name!r}{nearest(name, known)}")
    return config


def _inner(section: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(section) if dataclasses.is_dataclass(section) else ()


def to_table(config: Any) -> dict[str, Any]:
    """A config dataclass as nested plain values, for JSON."""
    return dataclasses.asdict(config, dict_factory=_plain)


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: str(value) if isinstance(value, Path) else value for key, value in items}


def to_toml(config: Config) -> str:
    """The resolved configuration as TOML that `read_toml` reads back to an equal object.

    >>> print(to_toml(Config()).splitlines()[0])
    method = "fedgr"
    """
    lines, tables = [], []
    for key, value in to_table(config).items():
        if isinstance(value, dict):
            body = [f"{k} = {_toml(v)}" for k, v in value.items() if v is not None]
            tables.append("\n".join([f"\n[{key}]", *body]))
        else:
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines + tables) + "\n"


def _toml(value: Any) -> str:
    """A plain value as TOML in ASCII: JSON, but for how TOML escapes other characters."""
    import json

    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isascii() and c != "\x7f" else f"\\U{ord(c):08x}" for c in text)
