"""What went wrong, as one line and an exit code."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from fedgr_secure.errors import DivergedError, InputError

OUT_OF_MEMORY = "out of memory; a smaller --batch-size, --width or --train-size, or --store disk, needs less"
_TORCH_IS_OUT_OF_MEMORY = re.compile(r"out of memory|(can't|not enough|unable to) .*memory|bad_alloc", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """Why a command or a cell of a sweep ended.

    Attributes:
        words: one line.
        code: the exit code. 1: a check failed or training diverged; 2: what the user or the machine supplied.
    """

    words: str
    code: int


def failure(error: BaseException) -> Failure | None:
    """An error in words; None for one that only a mistake in this program can cause.

    >>> failure(FileNotFoundError(2, "No such file or directory", "a.npz"))
    Failure(words='a.npz: No such file or directory', code=2)
    """
    if isinstance(error, InputError):
        return Failure(one_line(str(error)), 2)
    if isinstance(error, DivergedError):
        return Failure(one_line("; ".join([str(error), *getattr(error, "__notes__", [])])), 1)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _TORCH_IS_OUT_OF_MEMORY.search(str(error))
    ):
        return Failure(OUT_OF_MEMORY, 2)
    if isinstance(error, OSError):
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        return Failure(one_line(f"{place}{error.strerror or error}"), 2)
    return None


def one_line(text: str) -> str:
    r"""A text without the line breaks and control characters that a file's name may hold.

    >>> print(one_line("a\nb.toml does not exist"))
    a\nb.toml does not exist
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
