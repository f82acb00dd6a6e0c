"""Plain JSON and TOML values as typed dataclasses: strict, and with errors that name the place."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

from fedgr_secure.errors import InputError, nearest, require
from fedgr_secure.files import read_bytes


def decode(hint: Any, value: Any, where: str, *, defaults: bool = False) -> Any:
    """A parsed value as the annotated type `hint`.

    Args:
        hint: a plain type, `Literal`, `X | None`, `tuple`, `dict`, `Path` or a dataclass of such.
        value: what the JSON or TOML parser returned.
        where: the place, for errors.
        defaults: a dataclass's missing keys take their defaults; otherwise each key must be there.

    Raises:
        InputError: an unknown or missing key, or a value of another type; names the place and what is allowed.

    >>> decode(tuple[float, ...], [1, 2.5], "edges")
    (1.0, 2.5)
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        fits = any(type(value) is type(arg) and value == arg for arg in args)
        require(fits, f"{where}: {short(value)}, allowed: {', '.join(map(str, args))}")
        return value
    if origin in (types.UnionType, typing.Union):
        some = next(a for a in args if a is not type(None))
        return None if value is None else decode(some, value, where, defaults=defaults)
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast(type, hint), value, where, defaults=defaults)
    if origin is tuple:
        require(isinstance(value, (list, tuple)), f"{where}: {short(value)}, allowed: a list")
        kinds = (args[0],) * len(value) if args[-1] is Ellipsis else args
        require(len(kinds) == len(value), f"{where}: {len(value)} entries, allowed: {len(kinds)}")
        return tuple(decode(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if origin is dict:
        require(isinstance(value, dict), f"{where}: {short(value)}, allowed: an object")
        return {key: decode(args[1], entry, f"{where}: {key}") for key, entry in value.items()}
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        largest = sys.float_info.max
        require(-largest <= value <= largest, f"{where}: {short(value)}, allowed: a finite number")
        return float(value)
    fits = isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    require(fits, f"{where}: {short(value)}, allowed: {hint.__name__}")
    require(hint is not int or -(2**63) <= value < 2**63, f"{where}: {short(value)}, allowed: int of at most 64 bits")
    return value


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@functools.cache
def _needed(kind: type) -> frozenset[str]:
    """Keys that no file may lack; a field with a default came later, and files from before it are read, too."""
    none = dataclasses.MISSING
    return frozenset(f.name for f in dataclasses.fields(kind) if f.default is none and f.default_factory is none)


def _record(kind: type, value: Any, where: str, *, defaults: bool) -> Any:
    require(isinstance(value, dict), f"{where}: {short(value)}, allowed: a table")
    fields = _fields(kind)
    if "schema" in fields.keys() & value.keys():  # first: of another schema, other keys are to be expected
        decode(fields["schema"], value["schema"], f"{where}: schema")
    for key in value.keys() - fields.keys():
        raise InputError(f"{where}: unknown key {short(key)}{nearest(str(key), fields)}")
    missing = _needed(kind) - value.keys()
    require(defaults or not missing, f"{where}: {', '.join(sorted(missing))} is missing")
    values = {key: decode(fields[key], entry, f"{where}: {key}", defaults=defaults) for key, entry in value.items()}
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from None


def read_json(path: Path, hint: Any) -> Any:
    """A JSON file as the annotated type.

    Raises:
        InputError: the file is missing, is not strict JSON (NaN and Infinity are refused), or holds something else.
    """
    return decode(hint, parse_json(_text(read_bytes(path), path), path), str(path))


def read_json_lines(path: Path, kind: type, *, torn: bool = False, first: int | None = None) -> Iterator[Any]:
    """One record a line.

    Args:
        path: the file.
        kind: the records' dataclass.
        torn: a damaged last line is left out: a run that was killed, or is still writing, has not written it yet.
        first: only so many lines are read, whatever follows them.

    Raises:
        InputError: as `read_json`, naming the line, or there are fewer than `first` lines.
    """
    data = read_bytes(path)
    lines = _text(data if first is None else b"\n".join(first_lines(data, first, path)), path).split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip() and not (torn and number == len(lines) and not _is_json(line)):
            yield decode(kind, parse_json(line, path, line=number), f"{path}, line {number}")


def first_lines(data: bytes, count: int, path: Path) -> list[bytes]:
    """The first `count` lines of a file's content, each of which was written to its end.

    Raises:
        InputError: there are fewer.
    """
    lines = data.split(b"\n")[:-1]
    require(len(lines) >= count, f"{path}: {len(lines)} lines, allowed: {count} at least")
    return lines[:count]


def parse_json(text: str, path: Path, *, line: int = 1) -> Any:
    """Strict JSON; `line` is the number of the text's first line in its file."""

    def refuse(constant: str) -> NoReturn:
        raise InputError(f"{path}, line {line}: {constant}, allowed: finite numbers and null")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {line + error.lineno - 1}: damaged JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}, line {line}: damaged JSON: {error}") from None


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: is not UTF-8 text") from None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def short(value: Any) -> str:
    """A value in words for an error, cut to 60 characters.

    >>> short("abc"), short(0xF << 20000)  # Python writes no whole number of more than 4300 digits
    ("'abc'", 'a huge int')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
