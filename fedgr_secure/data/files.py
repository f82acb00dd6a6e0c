"""What the data layer may open, and what an error says of it: regular files and folders, one line each."""

from __future__ import annotations

import stat
from pathlib import Path

from fedgr_secure.errors import InputError, require

_LONGEST = 300
_LISTED = 5

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular_file(path: Path, what: str, *, allowed: str = "an existing file") -> Path:
    """The path, refused unless a regular file is there: a fifo or a device would be waited for without end.

    Raises:
        InputError: `what`, the path, and what is there instead.
    """
    mode = _mode(path, what)
    require(mode is not None, f"{what}: {shown(path)} does not exist, allowed: {allowed}")
    kind = stat.S_IFMT(mode or 0)
    require(kind == stat.S_IFREG, f"{what}: {shown(path)} is {_KINDS.get(kind, 'special')}, allowed: a regular file")
    return path


def is_folder(path: Path, what: str) -> bool:
    """Whether a folder is there.

    Raises:
        InputError: the path cannot be one (too long, a zero byte), or may not be looked at.
    """
    return stat.S_ISDIR(_mode(path, what) or 0)


def visible(folder: Path, what: str) -> list[Path]:
    """What a folder holds, sorted by name, without hidden entries (macOS leaves `._x.png` beside `x.png`).

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        return sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=lambda e: e.name)
    except OSError as error:
        raise InputError(f"{what}: {shown(folder)} cannot be read: {reason(error)}") from None


def read_text(path: Path, what: str) -> str:
    """The UTF-8 text of a regular file.

    Raises:
        InputError: it is missing, cannot be read, or is not text.
    """
    try:
        return regular_file(path, what).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{what}: {shown(path)} cannot be read as text: {reason(error)}") from None


def shown(value: object) -> str:
    """A path or a value for a message: on one line, and cut when it is long.

    >>> shown("a" * 1000)[:2], len(shown("a" * 1000)), shown("two\\nlines")
    ('aa', 183, "'two\\\\nlines'")
    """
    text = str(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _LONGEST else f"{text[:120]}...{text[-60:]}"


def listed(names: list[str]) -> str:
    """The first few names, for a message.

    >>> listed(["a", "b"])
    'a, b'
    """
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(shown(name) for name in names[:_LISTED]) + more


def reason(error: BaseException) -> str:
    """Why something failed, in one sentence and without the advice that libraries add for their own callers.

    >>> reason(ValueError("it is damaged. You can set allow_danger=True")), reason(MemoryError())
    ('it is damaged', 'MemoryError')
    """
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    first = (text.strip().splitlines() or [""])[0].split(". ")[0].rstrip(".")
    return shown(first) if first else type(error).__name__


def _mode(path: Path, what: str) -> int | None:
    """The mode of what a path leads to, or None when nothing is there."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{what}: {shown(path)} cannot be opened: {reason(error)}") from None
