"""HTML that several parts of the report share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; the first cell of a row is its heading."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(c)}</td>" for c in row[1:]) + "</tr>"
        for row in rows
    )
    table = f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="scroll">{table}</div>'
