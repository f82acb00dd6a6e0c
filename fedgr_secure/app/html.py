"""HTML that reports share: the page with its style, figures, tables. No script, and nothing fetched from anywhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

_CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1c1f23; font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 56rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
main.wide { max-width: 78rem; }
.wide figure { max-width: 54rem; }
.wide tbody th { white-space: normal; min-width: 8rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .8rem; padding-top: .9rem; border-top: 2px solid #d5dae0; }
p { margin: .6rem 0; max-width: 46rem; }
.lead { font-size: 1.12rem; }
.meta, figcaption, .note { color: #4a525c; font-size: .92rem; }
.warn { border-left: 5px solid #d55e00; background: #fdf3ec; padding: .6rem 1rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); gap: .8rem; margin: 1.4rem 0; }
.tiles div { border: 1px solid #d5dae0; border-radius: 6px; padding: .7rem .9rem; display: flex;
  flex-direction: column-reverse; justify-content: flex-end; }
.tiles dt { color: #4a525c; font-size: .88rem; line-height: 1.35; }
.tiles dd { margin: 0 0 .15rem; font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; }
figure { margin: 0 0 2rem; break-inside: avoid; }
figure img { display: block; width: 100%; height: auto; }
figcaption { max-width: 46rem; margin-top: .3rem; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #e3e7eb; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody th { font-weight: 600; }
thead th { border-bottom: 2px solid #9aa4af; white-space: normal; vertical-align: bottom; }
.words td:last-child, .words th:last-child { white-space: normal; text-align: left; min-width: 16rem; }
h3 { font-size: 1.12rem; margin: 2rem 0 .4rem; }
h4 { font-size: 1rem; margin: 1.2rem 0 0; color: #4a525c; }
.claim { border: 1px solid #d5dae0; border-radius: 6px; padding: .7rem 1rem; margin: .9rem 0; break-inside: avoid; }
.claim h3 { margin: 0 0 .2rem; font-size: 1.02rem; }
.claim p { max-width: none; margin: .25rem 0; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Consolas, monospace; font-size: .88rem; }
pre { background: #f5f7f9; border: 1px solid #e3e7eb; border-radius: 6px; padding: .8rem 1rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.claim code { overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .3rem 0; font-weight: 600; }
summary:focus-visible { outline: 3px solid #0072b2; }
@media (max-width: 32rem) { main { padding: 1.2rem .9rem 3rem; } h1 { font-size: 1.5rem; } }
@media print { main { max-width: none; padding: 0; } body { font-size: 11pt; } h2 { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; } tr { break-inside: avoid; }
  figure img { max-height: 22cm; object-fit: contain; } .scroll { overflow: visible; } table { font-size: 8pt; }
  th, td { white-space: normal; padding: .2rem .35rem; } td:nth-child(2) { white-space: nowrap; }
  .words td:last-child, .words th:last-child { min-width: 0; } }
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: bool = False) -> str:
    """An HTML table; the first cell of a row is its heading. With `words`, the last column is text that may wrap."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(c)}</td>" for c in row[1:]) + "</tr>"
        for row in rows
    )
    table = f"<table{' class=words' * words}>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="scroll">{table}</div>'


def page(title: str, parts: Iterable[str], *, wide: bool = False) -> str:
    """A whole page of parts, of which empty ones are left out; the browser is told to fetch nothing.

    Args:
        title: of the window.
        parts: HTML.
        wide: for tables of many columns.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main{' class=wide' * wide}>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def figure(path: Path, *, alt: str, caption: str) -> str:
    """A PNG file as part of the page."""
    image = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        f'<figure>\n<img alt="{escape(alt)}" src="data:image/png;base64,{image}">\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )
