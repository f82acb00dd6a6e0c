"""One self-contained page about a grid: tables, figures, the paper beside them, claims in words; no script."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path

from fedgr_secure.app.figures import draw_all, showing
from fedgr_secure.app.html import figure, page, table
from fedgr_secure.app.report import claim_block, claim_words, noise_words, shard_words
from fedgr_secure.app.tables import ABSENT
from fedgr_secure.app.tradeoff.drawing import Study
from fedgr_secure.app.tradeoff.figures import FIGURES, on_front
from fedgr_secure.app.tradeoff.grid import Grid, Row
from fedgr_secure.app.tradeoff.published import ACCURACIES, Comparison, accuracy, compare
from fedgr_secure.app.tradeoff.results import Measured
from fedgr_secure.app.tradeoff.shown import UNDEFINED, spread_cell, tables
from fedgr_secure.config import data_name, to_table, to_toml
from fedgr_secure.federation.folder import versions
from fedgr_secure.files import prune, write_atomic
from privacy.claims import PrivacyClaim

FILE = "tradeoff.html"
FORMATS = ("png", "pdf")
_VERDICTS = {
    "PASS": "the certified bound comes near the claim, and nothing refutes it",
    "NO POWER": "the certified bound is far below the claim, so that a claim that is too low might not have shown",
    "FAIL": "the claim is refuted (at most a few in a hundred sound channels fail by chance: to be sure, remove its "
    "file in audits/ and start again)",
}


def write_report(grid: Grid, rows: Sequence[Measured], root: Path, sentence: str) -> Path:
    """Write `root/tradeoff.html`, and its figures in `root/figures` as PNG and PDF; returns the page's path.

    Args:
        grid: what was to be run.
        rows: what it came to, from `results.collect`.
        root: the folder of all runs.
        sentence: the recommendation, at the top of the page.

    Raises:
        InputError: a setting names a published one that there is not, a number cannot be shown, or the disk refuses.
    """
    compared = [(row, found) for row in rows if (found := compare(row.row)) is not None]
    study = Study.of(grid, rows)
    names = draw_all(FIGURES, study, root, FORMATS)
    own = "|".join(Path(kind.file).stem for kind in FIGURES)
    kept = {f"{Path(name).stem}.{kind}" for name in names for kind in FORMATS}
    prune(root / "figures", rf"({own})\.({'|'.join(FORMATS)})", kept)  # of an earlier report, and apply no more
    with showing(root, FILE):
        parts = _parts(study, rows, compared, root, names, sentence)
        text = page(f"{grid.title}: privacy and utility", parts, wide=True)
    write_atomic(root / FILE, text)
    return root / FILE


def _parts(
    study: Study,
    rows: Sequence[Measured],
    compared: Sequence[tuple[Measured, Comparison]],
    root: Path,
    names: Sequence[str],
    sentence: str,
) -> tuple[str, ...]:
    return (
        _head(study.grid, rows, sentence),
        _missing(rows),
        _results(study, rows),
        *_figures(study, root, names),
        _beside(study, compared),
        _claims(study.rows),
        _reproduce(study.grid),
    )


def _head(grid: Grid, rows: Sequence[Measured], sentence: str) -> str:
    done = sum(len(row.summaries) for row in rows)
    total = done + sum(len(row.failed) for row in rows)
    meta = f"{_count(len(grid.rows), 'row')} in {_count(len(grid.settings), 'setting')}, {_count(grid.seeds, 'seed')}"
    return (
        f'<header>\n<h1>{escape(grid.title)}: privacy and utility</h1>\n<p class="lead">{escape(sentence)}</p>\n'
        f'<p class="meta">{meta}: {done} of {_count(total, "run")} complete.</p>\n</header>'
    )


def _missing(rows: Sequence[Measured]) -> str:
    """Which runs failed or are not done, row by row."""
    missing = [row for row in rows if row.failed]
    if not missing:
        return ""
    start = ""
    if not any(row.summaries for row in rows):
        start = (
            '<p class="warn"><strong>No run of this grid is complete</strong>, so there is nothing to compare.</p>\n'
        )
    begun = {row.row.setting for row in rows if row.summaries}
    lines = dict.fromkeys(
        f"{_name(row.row)}: {seed_words(row.failed)}" if row.row.setting in begun else f"{row.row.setting}: every run"
        for row in missing
    )
    words = f"<summary>{_count(sum(len(row.failed) for row in missing), 'run')} failed or not done</summary>"
    return f"{start}<details{' open' * (len(lines) <= 8)}>\n{words}\n{_list(list(lines))}</details>"


def seed_words(seeds: Sequence[int]) -> str:
    """Such as "seed 2" or "seeds 0, 1"."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _results(study: Study, rows: Sequence[Measured]) -> str:
    """Three tables a setting: what it is good for, what leaks, what it costs."""
    if not study.rows:
        return ""
    note = (
        "Mean ± sample standard deviation over seeds; one run has no spread. AUC: area under the ROC of the strongest "
        "membership attack on anything that the server sees, scores of all runs together, with a bootstrap interval of "
        "95 %; TPR: members found at a false positive rate (FPR); "
        f'"{UNDEFINED}" rates: too few records from outside. Certified: an audit of the plan, worst case. '
        "1 MB is 10^6 bytes. Peak memory is of the run's process."
    )
    blocks = [_setting(name, own) for name, own in study.by_setting(rows).items()]
    return "\n".join(["<section>\n<h2>Results</h2>", *blocks, f'<p class="note">{note}</p>\n</section>'])


def _setting(name: str, rows: Sequence[Measured]) -> str:
    if not any(row.summaries for row in rows):
        return f"<h3>{escape(name)}</h3>\n<p>No run is complete in this setting.</p>"
    words = {_setting_words(row.row) for row in rows}  # a series may have its own data or noise
    intro = f"\n<p>{escape(words.pop())}</p>" if len(words) == 1 else ""
    return f"<h3>{escape(name)}</h3>{intro}\n" + "\n".join(
        f"<h4>{what}</h4>\n{table(*cells)}" for what, cells in tables(rows)
    )


def _setting_words(row: Row) -> str:
    config = row.config
    images = "all" if config.data.train_size is None else f"{config.data.train_size:,}"
    return (
        f"Data: {data_name(config)}, {images} training images, over {config.federation.clients} clients "
        f"({shard_words(config.partition)}), of which {config.federation.cohort} train in each of "
        f"{config.federation.rounds} rounds. {noise_words(config.noise, config.federation.clients)}"
    )


def _figures(study: Study, root: Path, names: Sequence[str]) -> list[str]:
    """A section for each figure that was drawn, with what is said of it in words."""
    titles = {
        "utility.png": ("Accuracy against claimed epsilon", ""),
        "sieve.png": ("The sieve against claimed epsilon", ""),
        "leakage.png": ("Accuracy against measured leakage", _front_words(study)),
        "certified.png": ("Claims against audits", _verdict_words(study.rows)),
        "roc.png": ("The strongest attacks", ""),
        "cost.png": ("Cost", ""),
    }
    return [
        f"<section>\n<h2>{titles[kind.file][0]}</h2>\n"
        f"{figure(root / 'figures' / kind.file, alt=kind.alt, caption=kind.caption)}\n{titles[kind.file][1]}</section>"
        for kind in FIGURES
        if kind.file in names
    ]


def _front_words(study: Study) -> str:
    """The rows on the Pareto front of each setting, and those that were not attacked."""
    lines = [
        f"{name}: {'; '.join(row.row.name for row in front)}"
        for name, rows in study.by_setting(study.rows).items()
        if (front := on_front(rows))
    ]
    words = "<p>On the Pareto front, beaten by no row in both:</p>\n" + _list(lines) if lines else ""
    left = [_name(row.row) for row in study.rows if row.strongest() is None]
    return words + (f'<p class="note">Not attacked: {escape("; ".join(left))}.</p>\n' if left else "")


def _verdict_words(rows: Sequence[Measured]) -> str:
    lines = []
    for verdict, words in _VERDICTS.items():
        names = dict.fromkeys(row.row.name for row in rows if row.certified and row.certified.verdict == verdict)
        if names:
            lines.append(f"{verdict}: {words}: {'; '.join(names)}.")
    return _list(lines)


def _beside(study: Study, compared: Sequence[tuple[Measured, Comparison]]) -> str:
    """Measured beside published numbers, and what differs."""
    if not compared:
        return ""
    intro = (
        "<p>FedGR's published accuracies on CIFAR-10 (mean of the last ten rounds, arXiv 2412.00452) beside what was "
        "measured here. Where settings differ, the numbers are not to be compared one by one; orders may be.</p>"
    )
    blocks = []
    for name in study.grid.settings:
        own = [(row, found) for row, found in compared if row.row.setting == name]
        if own:
            blocks.append(_beside_setting(name, own))
    return "\n".join(["<section>\n<h2>Beside the paper</h2>", intro, *blocks, "</section>"])


def _beside_setting(name: str, compared: Sequence[tuple[Measured, Comparison]]) -> str:
    published = str(compared[0][0].row.published)
    common = [words for words in compared[0][1].differences if all(words in found.differences for _, found in compared)]
    rows = [
        (
            row.row.name,
            found.method,
            f"{found.accuracy:.2f}" + (f" ({found.note})" if found.note else ""),
            spread_cell(row, "accuracy_last10", 100, 2),
            "; ".join(words for words in found.differences if words not in common) or ABSENT,
        )
        for row, found in compared
    ]
    head = ("Row", "The paper's method", "Paper (%)", "Measured (%)", "What else differs")
    others = [
        f"{method} {accuracy(method, published):.2f}" for method in ACCURACIES if method not in _methods(compared)
    ]
    shared = f"<p>In all rows: {escape('; '.join(common))}.</p>\n" if common else ""
    return (
        f"<h3>{escape(name)}, beside {escape(published)}</h3>\n{shared}{table(head, rows, words=True)}\n"
        f'<p class="note">The paper\'s other methods (%): {escape("; ".join(others))}.</p>'
    )


def _methods(compared: Sequence[tuple[Measured, Comparison]]) -> set[str]:
    return {found.method for _, found in compared}


def _claims(rows: Sequence[Measured]) -> str:
    """Every claim once, in words and in full, and which rows make it."""
    if not rows:
        return ""
    made: dict[PrivacyClaim, list[Measured]] = {}
    for row in rows:
        for claim in dict.fromkeys(claim for summary in row.summaries for claim in summary.privacy):
            made.setdefault(claim, []).append(row)
    alike: dict[tuple[str, str], dict[PrivacyClaim, str]] = {}
    for claim, makers in made.items():
        group = alike.setdefault((claim.subject, claim_words(claim)), {})
        group[claim] = f"Claimed by {_who(makers, rows)}."
    open_weights = [row for row in rows if not _private_weights(row)]
    parts = [
        "<p>This is what a server learns that follows the protocol but reads everything it receives. Anything that is "
        "not listed here is to be taken as unprotected.</p>"
    ]
    if open_weights:
        parts.append(
            '<p class="warn"><strong>The model weights are not differentially private</strong> in '
            f"{escape(_who(open_weights, rows))}. An epsilon there is of the loss proxies alone; the models may tell "
            "more.</p>"
        )
    parts += [claim_block(group) for group in alike.values()]
    return "<section>\n<h2>Privacy: what is claimed</h2>\n" + "\n".join(parts) + "\n</section>"


def _who(some: Sequence[Measured], rows: Sequence[Measured]) -> str:
    """Names of some of the rows, with their settings where it is not all of them."""
    if len(some) == len(rows):
        return "every row"
    lines = []
    for name in dict.fromkeys(row.row.name for row in some):
        own = [row.row.setting for row in some if row.row.name == name]
        whole = len(own) == sum(row.row.name == name for row in rows)
        lines.append(name if whole else f"{name} ({', '.join(own)})")
    return "; ".join(lines)


def _private_weights(row: Measured) -> bool:
    claim = row.claim("model weights")
    return claim is not None and claim.epsilon is not None


def _reproduce(grid: Grid) -> str:
    """The command, the versions, the first row's configuration, and how the others differ from it."""
    first = grid.rows[0]
    changes = [(_name(row), _changes(first, row) or ABSENT) for row in grid.rows[1:]]
    others = ""
    if changes:
        others = (
            "<details>\n<summary>What the other rows change</summary>\n"
            f"{table(('Row', 'Settings'), changes, words=True)}\n</details>\n"
        )
    command = shlex.join(["fedgr-secure", "tradeoff", Path(grid.name).name, "--seeds", str(grid.seeds)])
    return (
        f"<section>\n<h2>How to reproduce this page</h2>\n<pre>{escape(command)}</pre>\n"
        f"<p>The grid is a shipped one or a TOML file; this one is called {escape(repr(grid.title))}, with seeds from "
        f"0 to {grid.seeds - 1}. Every draw follows from the seed, but for keys and privacy noise, which are the "
        "system's.</p>\n"
        f"{table(('Software', 'Version'), list(versions().items()))}\n"
        f"<details>\n<summary>Full configuration of {escape(_name(first))} (TOML)</summary>\n"
        f"<pre>{escape(to_toml(first.config))}</pre>\n</details>\n{others}</section>"
    )


def _changes(first: Row, row: Row) -> str:
    """The settings in which two rows differ, by their flat names."""
    before, after = (_flat(one) for one in (first, row))
    return ", ".join(f"{key} = {after[key]}" for key in after if after[key] != before[key])


def _flat(row: Row) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(row.config):
        value = to_table(row.config)[field.name]
        found |= value if isinstance(value, dict) else {field.name: value}
    return found


def _name(row: Row) -> str:
    return f"{row.name} ({row.setting})"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"\n<li>{escape(line)}</li>" for line in lines) + "\n</ul>\n" if lines else ""
