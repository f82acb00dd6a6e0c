"""What the commands print."""

from __future__ import annotations

import errno
import os
from typing import Any

from rich.console import Console

from fedgr_secure.errors import InputError


class Output(Console):
    """A console that refuses by name when its words cannot be written (a full disk, a reader that has gone)."""

    def say(self, text: str, **options: Any) -> None:
        """One line as it is: no markup, no colours of its own, and no break where the terminal ends."""
        self.print(text, markup=False, highlight=False, soft_wrap=True, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's.

        Raises:
            InputError: nothing can be written.
        """
        try:
            super().print(*objects, **options)
        except OSError as error:
            stream = "error" if self.stderr else "output"
            raise InputError(f"standard {stream}: cannot be written: {error.strerror}") from None

    def on_broken_pipe(self) -> None:
        """Rich would end the process without a word."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
