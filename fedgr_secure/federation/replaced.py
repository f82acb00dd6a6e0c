"""A run that another one replaces: it waits inside the folder until the new run has done its first round.

It is moved by way of `replaced.part/`, its manifest first and back last, so that a process killed in between leaves
either a whole run or a folder that `recover` makes whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from fedgr_secure.files import disk

REPLACED = "replaced"
_PART = "replaced.part"
_MANIFEST = "manifest.json"


def recover(folder: Path) -> None:
    """Move back what a killed process left in `replaced.part/`."""
    part = folder / _PART
    with disk(part, "moved back"):
        if part.exists():
            for path in sorted(part.iterdir(), key=lambda path: path.name == _MANIFEST):
                path.rename(folder / path.name)
            part.rmdir()


def set_aside(folder: Path, names: Iterable[str], *, begun: bool) -> None:
    """Move what a run wrote into `replaced/`.

    Where an older run waits there already, it is the one that stays, unless the newer one had `begun`.
    """
    if (folder / REPLACED).exists() and not begun:
        _remove(folder, names)
        return
    forget(folder)
    with disk(folder / REPLACED, "made"):
        found = _found(folder, names)
        if found:
            part = folder / _PART
            part.mkdir()
            for path in sorted(found, key=lambda path: path.name != _MANIFEST):
                path.rename(part / path.name)
            part.rename(folder / REPLACED)


def put_back(folder: Path, names: Iterable[str]) -> None:
    """Remove what a failed run wrote, and move the run that it was to replace back."""
    _remove(folder, names)
    with disk(folder / REPLACED, "moved back"):
        if (folder / REPLACED).exists():
            (folder / REPLACED).rename(folder / _PART)
    recover(folder)


def forget(folder: Path) -> None:
    """Remove the run that waits in `replaced/`."""
    with disk(folder / REPLACED, "removed"):
        if (folder / REPLACED).exists():
            shutil.rmtree(folder / REPLACED)


def _found(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if name not in (REPLACED, _PART) and (folder / name).exists()]


def _remove(folder: Path, names: Iterable[str]) -> None:
    with disk(folder, "cleared"):
        for path in _found(folder, names):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
