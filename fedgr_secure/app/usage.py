"""The parser's complaints in one line: the flag, its value, and what is allowed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from fedgr_secure.errors import nearest

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_UNKNOWN = re.compile(r".*Unrecognized (?:or misplaced )?options:\s*([^\s,=]*)")
_WORDINGS = (
    (r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)", r"\1: \2, allowed: a whole number"),
    (r"Error parsing (\S+): could not convert string to float: (.*)", r"\1: \2, allowed: a number"),
    (r"Error parsing (\S+): no type matching \S*INT .*? from \[(.*?)\]\..*", r"\1: \2, allowed: a whole number"),
    (r"Error parsing (\S+): no type matching \S*FLOAT .*? from \[(.*?)\]\..*", r"\1: \2, allowed: a number"),
    (r"Error parsing (\S+): (.*)", r"\1: \2"),
    (r"invalid choice (.*) for argument '(\S+)'\. Expected one of \((.*?),?\)\.", r"\2: \1, allowed: \3"),
    (r"Missing value for argument '(\S+)'\..*", r"\1: no value, allowed: one value"),
    (r"Missing from \S+ (\w+): (\S+).*", r"\1: \2 is missing"),
    (r"Expected one of \{(.*)\}\.", r"command: none, allowed: \1"),
)


def one_line(box: str, program: str, command: str, known: Iterable[str]) -> str:
    """What the parser says in a box of several lines, as one.

    Args:
        box: what it wrote to standard error.
        program: the program's name.
        command: the first argument.
        known: the flags of that command, or the commands where it is none.

    >>> box = "╭─ Unrecognized options ─╮\\n│ Unrecognized options: --rouns, 3 │\\n│ ──── │\\n│ For full helptext... │"
    >>> one_line(box, "fedgr-secure", "run", ["--rounds", "--clients"])
    '--rouns: unknown to run (did you mean --rounds?); fedgr-secure run --help names all'
    """
    said = _first_paragraph(_COLOURS.sub("", box))
    if unknown := _UNKNOWN.match(said):
        word = unknown[1] or "''"
        of, help_ = ("", f"{program} --help") if word == command else (f" to {command}", f"{program} {command} --help")
        return f"{word}: unknown{of}{nearest(word, known)}; {help_} names all"
    for pattern, wording in _WORDINGS:
        if found := re.fullmatch(pattern, said):
            return found.expand(wording)
    return said


def _first_paragraph(box: str) -> str:
    """The words below the title, up to the first rule; without the frame, which an ASCII terminal does not get."""
    title, *lines = [line.strip("│ ") for line in box.strip().split("\n")]
    below = itertools.dropwhile(_is_rule, lines)
    return " ".join(itertools.takewhile(lambda line: not _is_rule(line), below)).strip() or title


def _is_rule(line: str) -> bool:
    return set(line) <= set("─-╰╯ ")
