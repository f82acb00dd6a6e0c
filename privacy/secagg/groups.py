"""The numbers of a secure sum: a client's values as ring words, and the weighted mean back from a sum of them.

A mean's coordinate x with weight n_k travels as q = floor(2^b n_k clip(x) + U), U uniform on [0, 1), in two's
complement. Weighting before rounding is what makes 32 bits enough. q is one of the two whole numbers next to
2^b n_k clip(x), so the mean over n clients is within n / (2^b sum n_k) of the exact one (float64's own rounding apart),
and unbiased.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.errors import AbortError, ConfigurationError
from privacy.secagg.layout import Group, Layout, require, require_whole
from privacy.secagg.masks import KEY_BYTES, Keystream

__all__ = ["Group", "Layout", "Total", "add", "decode", "encode"]

COORDINATES = 32768
"""encoded at a time, so that they stay in the cache"""


@dataclass(frozen=True)
class Total:
    """What a sum holds.

    Attributes:
        weight: sum of the clients' weights.
        means: the weighted mean of each mean group, float64, flat.
        counts: the sum of each count group, int64, flat.
        clipped: how many coordinates of each mean group were clipped, over all clients.
    """

    weight: int
    means: dict[str, NDArray[np.float64]]
    counts: dict[str, NDArray[np.int64]]
    clipped: dict[str, int]


def encode(
    layout: Layout,
    values: Mapping[str, NDArray[np.generic]],
    weight: int,
    rounding: np.random.Generator,
    *,
    out: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """A client's vector, not yet masked.

    Args:
        layout: what is summed.
        values: by group an array of its size, in any shape: float32 or float64 of a mean, whole numbers of a count.
        weight: of this client, from 1.
        rounding: gives the key of the uniform numbers that coordinates are rounded with.
        out: memory of `layout.nbytes` to write to and return; left all zero when the values are refused.

    Raises:
        ConfigurationError: for other groups, sizes or types, numbers that are not finite, counts beyond the limit.
    """
    require_whole(weight, "weight", layout.largest_weight)
    _require_values(layout, values)
    vector = np.empty(layout.nbytes, np.uint8) if out is None else out
    _require_writeable(vector)
    header, words, padding = _parts(layout, vector)
    header[0], padding[:] = weight, 0
    uniform = Keystream(rounding.bytes(KEY_BYTES))
    try:
        for index, group in enumerate(layout.means, start=1):
            scale = 2.0 ** layout.bits_of(group)
            header[index] = _encode_mean(
                group, np.asarray(values[group.name]), weight, scale, uniform, words[group.name]
            )
        for group in layout.groups:
            if group.kind == "count":
                _encode_count(group, np.asarray(values[group.name]), words[group.name])
    except ConfigurationError:
        vector.fill(0)
        raise
    return vector


def _require_values(layout: Layout, values: Mapping[str, NDArray[np.generic]]) -> None:
    """Exactly the declared groups, each an array of its size and of a type that it can hold exactly."""
    names = {group.name for group in layout.groups}
    unknown, missing = sorted(map(repr, values.keys() - names)), sorted(map(repr, names - values.keys()))
    require(not unknown, f"values: {', '.join(unknown)}, allowed: only declared groups")
    require(not missing, f"values: without {', '.join(missing)}, allowed: every declared group")
    for group in layout.groups:
        value, what = values[group.name], f"group {group.name!r}"
        require(isinstance(value, np.ndarray), f"{what}: a {type(value).__name__}, allowed: a numpy array")
        require(value.size == group.size, f"{what}: {value.size} coordinates, allowed: {group.size}")
        real = group.kind == "mean"
        typed = value.dtype in (np.float32, np.float64) if real else value.dtype.kind in "iu"
        allowed = "float32 or float64" if real else "whole numbers"
        require(typed, f"{what}: values of type {value.dtype}, allowed: {allowed}")


def _encode_mean(
    group: Group,
    value: NDArray[np.generic],
    weight: int,
    scale: float,
    uniform: Keystream,
    words: NDArray[np.unsignedinteger],
) -> int:
    """Clip, weight and round one group into its words; how many coordinates were clipped."""
    flat = value.reshape(-1) if value.flags.c_contiguous else value.flat
    length = min(COORDINATES, group.size)
    real, fixed, draws = np.empty(length), np.empty(length, np.int64), np.empty(length, np.uint32)
    clipped = 0
    for start in range(0, group.size, COORDINATES):
        block = flat[start : start + COORDINATES]
        size, target = block.size, words[start : start + block.size]
        clipped += _clip(group, block, real[:size])
        uniform.read_into(draws[:size].view(np.uint8))
        _round(real[:size], weight, scale, fixed[:size], draws[:size], target)
    return clipped


def _clip(group: Group, block: NDArray[np.generic], real: NDArray[np.float64]) -> int:
    """Copy a block to float64, clipped; compared in float64, in which the limit is exact."""
    inside = -group.limit <= float(block.min()) and float(block.max()) <= group.limit
    finite = inside or bool(np.isfinite(block).all())
    require(finite, f"group {group.name!r}: NaN or an infinity among its values, allowed: finite numbers")
    np.copyto(real, block)
    if inside:
        return 0
    clipped = np.count_nonzero(real > group.limit) + np.count_nonzero(real < -group.limit)
    np.clip(real, -group.limit, group.limit, out=real)
    return int(clipped)


def _round(
    real: NDArray[np.float64],
    weight: int,
    scale: float,
    fixed: NDArray[np.int64],
    draws: NDArray[np.uint32],
    words: NDArray[np.unsignedinteger],
) -> None:
    """words = floor(scale * weight * real + draws / 2^32), in fixed point with 32 fraction bits.

    Products are rounded to float64's nearest, which never passes a whole number below 2^53. Above that, in words of 64
    bits, the whole part of scale * real (exact: the scale is a power of two) is weighted as an integer.
    """
    whole = None
    if words.itemsize == 8:
        np.multiply(real, scale, out=real)
        whole, scale = np.trunc(real), 1.0
        np.subtract(real, whole, out=real)
    np.multiply(real, scale * weight * 2.0**32, out=real)
    np.copyto(fixed, real, casting="unsafe")
    np.add(fixed, draws, out=fixed)
    np.right_shift(fixed, 32, out=fixed)
    if whole is not None:
        np.add(fixed, whole.astype(np.int64) * weight, out=fixed)
    np.copyto(words, fixed, casting="unsafe")


def _encode_count(group: Group, value: NDArray[np.generic], words: NDArray[np.unsignedinteger]) -> None:
    """Copy whole numbers into a group's words, once all are within its limit."""
    inside = -group.limit <= int(value.min()) and int(value.max()) <= group.limit
    allowed = f"whole numbers from {-group.limit} to {group.limit}"
    require(inside, f"group {group.name!r}: a coordinate beyond its limit, allowed: {allowed}")
    np.copyto(words.view(_signed(group)).reshape(value.shape), value, casting="unsafe")


def add(layout: Layout, into: NDArray[np.uint8], vector: NDArray[np.uint8]) -> None:
    """Add a vector, masked or not, to another in the ring, in place."""
    cut = 8 * layout.words64
    for part in (into, vector):
        _require_vector(layout, part)
    _require_writeable(into)
    for side, words in ((np.s_[:cut], "<u8"), (np.s_[cut:], "<u4")):
        total = into[side].view(words)
        np.add(total, vector[side].view(words), out=total)


def decode(layout: Layout, vector: NDArray[np.uint8]) -> Total:
    """The total from an unmasked sum of vectors.

    Raises:
        AbortError: if it holds what no sum of at most `layout.clients` vectors holds: the masks did not cancel.
    """
    header, words, padding = _parts(layout, vector)
    weight, clipped = int(header[0]), {}
    _require_sum(1 <= weight <= layout.clients * layout.largest_weight, "weight")
    for group, count in zip(layout.means, header[1:].tolist(), strict=True):
        _require_sum(count <= layout.clients * group.size, f"number of clipped coordinates of group {group.name!r}")
        clipped[group.name] = count
    _require_sum(not padding.any(), "padding")
    means, counts = {}, {}
    for group in layout.groups:
        signed = words[group.name].view(_signed(group))
        if group.kind == "count":
            _require_range(group, signed, layout.clients * int(group.limit))
            counts[group.name] = signed.astype(np.int64)
        else:
            bits = layout.bits_of(group)
            top, bottom = group.limit.as_integer_ratio()
            _require_range(group, signed, (2**bits * weight * top) // bottom + layout.clients)
            means[group.name] = signed / (2.0**bits * weight)
    return Total(weight, means, counts, clipped)


def _require_sum(condition: bool, what: str) -> None:
    if not condition:
        raise AbortError(f"{what}: more than the clients can have sent, allowed: only sums whose masks cancelled")


def _require_range(group: Group, signed: NDArray[np.signedinteger], most: int) -> None:
    _require_sum(-most <= int(signed.min()) and int(signed.max()) <= most, f"group {group.name!r}")


def _signed(group: Group) -> str:
    return f"<i{group.bits // 8}"


def _require_vector(layout: Layout, vector: NDArray[np.uint8]) -> None:
    row = isinstance(vector, np.ndarray) and vector.dtype == np.uint8 and vector.ndim == 1 and vector.flags.c_contiguous
    require(row, "vector: something else, allowed: one contiguous row of uint8")
    require(vector.size == layout.nbytes, f"vector: {vector.size} bytes, allowed: {layout.nbytes}")


def _require_writeable(vector: NDArray[np.uint8]) -> None:
    writeable = isinstance(vector, np.ndarray) and vector.flags.writeable
    require(writeable, "vector: read-only, allowed: memory to write to")


def _parts(
    layout: Layout, vector: NDArray[np.uint8]
) -> tuple[NDArray[np.uint64], dict[str, NDArray[np.unsignedinteger]], NDArray[np.uint64]]:
    """Views of a vector: its header, the words of each group, and the padding."""
    _require_vector(layout, vector)
    wide, narrow = vector[: 8 * layout.words64].view("<u8"), vector[8 * layout.words64 :].view("<u4")
    words: dict[str, NDArray[np.unsignedinteger]] = {}
    header, rest = np.split(wide, [1 + len(layout.means)])
    for group in layout.groups:
        if group.bits == 64:
            words[group.name], rest = np.split(rest, [group.size])
        else:
            words[group.name], narrow = np.split(narrow, [group.size])
    return header, words, rest
