"""Frozen dataclasses as bytes: one strict format for messages, client states and checkpoints.

A record is a safetensors file: its arrays are tensors (a dict field becomes `field/key`), everything else is JSON in
the header. Nothing is pickled, so bytes from a stranger cannot run code. Reading is closed: the caller lists the record
types that it accepts, and an unknown type, a missing or an additional field is an error.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedgr_secure.errors import InputError
from fedgr_secure.typed import decode

Array = NDArray[Any]
Weights = dict[str, Array]
Record = TypeVar("Record")

_HEADER = "record"


class WireError(InputError):
    """Bytes that are not one of the expected records."""


def to_bytes(record: Any) -> bytes:
    """Serialise a dataclass whose fields are arrays, dicts of arrays, plain values or dataclasses of plain values.

    Raises:
        WireError: a field holds something else, or a number that is not finite.
    """
    kind = type(record).__name__
    require_wire(dataclasses.is_dataclass(record) and not isinstance(record, type), f"{kind}, allowed: a dataclass")
    tensors: dict[str, Array] = {}
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            tensors[field.name] = np.ascontiguousarray(value).reshape(value.shape)
        elif isinstance(value, Mapping):
            plain[field.name] = {"arrays": list(value)}
            for key, array in value.items():
                require_wire(isinstance(key, str), f"{field.name}: key {key!r}, allowed: strings")
                tensors[f"{field.name}/{key}"] = np.ascontiguousarray(array).reshape(np.shape(array))
        else:
            nested = dataclasses.is_dataclass(value) and not isinstance(value, type)
            plain[field.name] = dataclasses.asdict(value) if nested else value
    try:
        header = json.dumps({"type": kind, "fields": plain}, allow_nan=False)
        return save(tensors, {_HEADER: header})
    except (SafetensorError, TypeError, ValueError) as error:
        raise WireError(f"{kind} cannot be written: {error}") from None


def from_bytes(data: bytes, kinds: Iterable[type[Record]]) -> Record:
    """Read back one record of one of `kinds`.

    Raises:
        WireError: the bytes are damaged, of another type, or carry other fields than the type has.
    """
    by_name = {kind.__name__: kind for kind in kinds}
    tensors, name, plain = _open(data)
    require_wire(name in by_name, f"message type: {name}, allowed: {', '.join(sorted(by_name))}")
    kind = by_name[name]
    try:
        return _build(kind, tensors, plain)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, WireError) else WireError(f"{name}: {error}") from None


def _build(kind: type[Record], tensors: dict[str, Array], plain: dict[str, Any]) -> Record:
    """The record from its parts; every field once, and nothing else."""
    hints = typing.get_type_hints(kind)
    expected = {field.name for field in dataclasses.fields(typing.cast(Any, kind))}
    values: dict[str, Any] = {}
    for field, value in plain.items():
        require_wire(field in expected, f"{kind.__name__}: unknown field {field!r}, allowed: {sorted(expected)}")
        holds = _container(hints[field])
        if holds is dict and value is not None:
            values[field] = _arrays(tensors, field, value)
        else:
            require_wire(holds is None or value is None, f"{field}: {type(value).__name__}, allowed: an array")
            values[field] = decode(hints[field], value, field)
    arrays = [field for field in tensors if field in expected - set(values) and _container(hints[field]) is np.ndarray]
    values |= {field: tensors.pop(field) for field in arrays}
    require_wire(
        not tensors and set(values) == expected,
        f"{kind.__name__}: missing {sorted(expected - set(values))}, not allowed {sorted(tensors)}",
    )
    return kind(**values)


def _container(hint: Any) -> Any:
    """`np.ndarray` or `dict` where a field's type is that or optionally that; None for plain values."""
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    origins = {typing.get_origin(kind) for kind in (typing.get_args(hint) if union else (hint,))}
    return next((kind for kind in (np.ndarray, dict) if kind in origins), None)


def _arrays(tensors: dict[str, Array], field: str, value: Any) -> Weights:
    """A dict field, from the list of its keys."""
    keys = value["arrays"] if isinstance(value, dict) and set(value) == {"arrays"} else None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise WireError(f"{field}: {type(value).__name__}, allowed: arrays by name")
    return {key: _pop(tensors, f"{field}/{key}") for key in keys}


def require_wire(condition: bool, message: str) -> None:
    """Raise `WireError(message)` unless `condition` holds."""
    if not condition:
        raise WireError(message)


def _open(data: bytes) -> tuple[dict[str, Array], str, dict[str, Any]]:
    """The tensors, the type name and the plain fields of a record's bytes."""
    try:
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_HEADER])
        return tensors, str(header["type"]), dict(header["fields"])
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise WireError(f"not a record ({len(data)} bytes): {error}") from None


def _pop(tensors: dict[str, Array], key: str) -> Array:
    require_wire(key in tensors, f"array {key} is missing")
    return tensors.pop(key)
