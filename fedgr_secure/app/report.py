"""One self-contained HTML page about a run: no script, and nothing fetched from anywhere."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from fedgr_secure.app.attack_report import attack_section
from fedgr_secure.app.figures import FIGURES, last_and_best, run_title, seconds_by_phase, showing, write_figures
from fedgr_secure.app.html import figure, page, table
from fedgr_secure.app.runfolder import RunData, read_run
from fedgr_secure.app.secure_report import release_section, secure_section
from fedgr_secure.app.tables import ABSENT, METHOD_NAMES, data_size, duration, number, percent
from fedgr_secure.checks import oracle
from fedgr_secure.config import data_name, to_toml
from fedgr_secure.files import write_atomic
from fedgr_secure.sections import NoiseConfig, PartitionConfig
from privacy.claims import PrivacyClaim

LAST_ROUNDS = 15


def write_report(folder: Path) -> Path:
    """Draw the figures of the run in `folder` and write its `report.html`; returns the page's path.

    Raises:
        InputError: `folder` is not a run folder, a file in it is damaged, or a number in it cannot be shown.
    """
    run = read_run(folder)
    names = write_figures(run, folder)
    with showing(folder, "report.html"):
        text = _page(run, names)
    path = folder / "report.html"
    write_atomic(path, text)
    return path


def _page(run: RunData, figures: Sequence[str]) -> str:
    parts = (
        _headline(run),
        _figures(run, figures),
        _cost(run),
        _privacy(run.claims),
        release_section(run),
        secure_section(run),
        attack_section(run),
        _last_rounds(run),
        _clients(run),
        _reproduce(run),
    )
    return page(f"{run_title(run)}: run report", parts)


def _headline(run: RunData) -> str:
    config, manifest = run.config, run.manifest
    started, device = escape(manifest.started), escape(manifest.device)
    count = _networks(run)
    has = "the model has" if count == 1 else f"the {count} networks together have"
    meta = f"Started {started} on device {device}; {has} {manifest.parameters:,} parameters."
    return (
        f"<header>\n<h1>{escape(run_title(run))}</h1>\n"
        f'<p class="lead">{escape(_result_words(run))}</p>\n'
        f"<p>{escape(_setting_words(run))} {escape(noise_words(config.noise, config.federation.clients))}</p>\n"
        f'<p class="meta">{meta}</p>\n{_unfinished(run)}{_tiles(run)}</header>'
    )


def _result_words(run: RunData) -> str:
    """The accuracy in one sentence."""
    if not run.rounds:
        return "No round has ended yet, so there is no accuracy to report."
    mean, best = last_and_best(run.rounds)
    last = min(10, len(run.rounds))
    span = f"on average over the last {last} rounds" if last > 1 else "after its only round"
    return (
        f"The global model classifies {percent(mean)} of the test images correctly {span}; "
        f"its best round, round {best.round + 1}, reaches {percent(best.accuracy)}."
    )


def _setting_words(run: RunData) -> str:
    config, federation, told = run.config, run.config.federation, oracle(run.config)
    method = METHOD_NAMES.get(config.method, config.method)
    if config.method == "central":
        return f"{method}: one {config.model.model} model trained on the pooled {data_name(config)} data."
    count = _networks(run)
    what = f"one {config.model.model} model" if count == 1 else f"{count} {config.model.model} networks side by side"
    return (
        f"{method} trains {what} on {data_name(config)}, split over "
        f"{federation.clients} clients ({shard_words(config.partition)}), of which "
        f"{federation.cohort} are drawn in each round.{f' An oracle tells them {told}.' if told else ''}"
    )


def _networks(run: RunData) -> int:
    """How many networks are the run's one model."""
    from fedgr_secure.registry import METHODS

    return METHODS[run.config.method].networks


def shard_words(partition: PartitionConfig) -> str:
    """How the images are split.

    >>> shard_words(PartitionConfig(partition="dirichlet", dirichlet_alpha=0.3))
    'a skewed split of the classes, Dirichlet(0.3)'
    """
    return {
        "iid": "equal random shards",
        "dirichlet": f"a skewed split of the classes, Dirichlet({partition.dirichlet_alpha:g})",
        "file": "a partition file",
    }[partition.partition]


def noise_words(noise: NoiseConfig, clients: int) -> str:
    """The label noise in one sentence.

    >>> noise_words(NoiseConfig(label_noise="none"), 20)
    'No label noise was added.'
    """
    if noise.label_noise == "none":
        return "No label noise was added."
    if noise.label_noise == "given":
        return "The labels are the possibly wrong ones that came with the data."
    who = {True: f"All {clients} clients have", False: f"{noise.phi:.0%} of the clients have"}[noise.phi >= 1]
    kind = {
        "symmetric": "a random class, maybe the true one" if noise.include_true_class else "a random other class",
        "asymmetric": "one fixed other class for each class",
        "mixed": "either a random or a fixed other class, by a coin per client",
    }[noise.label_noise]
    rates = f"{noise.rho_min:.0%} to {noise.rho_max:.0%}" if noise.rho_min < noise.rho_max else f"{noise.rho_min:.0%}"
    return f"{who} wrong labels ({noise.label_noise} noise): {rates} of a client's labels became {kind}."


def _unfinished(run: RunData) -> str:
    if run.summary is not None or not run.rounds:  # without a round the lead says it
        return ""
    return (
        f'<p class="warn"><strong>This run is not finished:</strong> {len(run.rounds)} of '
        f"{run.config.federation.rounds} rounds are done, and the figures below cover only those.</p>\n"
    )


def _tiles(run: RunData) -> str:
    """The run's figures at a glance, leaving out what does not apply."""
    if not run.rounds:
        return ""
    mean, best = last_and_best(run.rounds)
    known = run.summary if run.summary is not None else run.rounds[-1]
    wrong = sum(c.realised_rate * c.samples for c in run.clients)
    samples = sum(c.samples for c in run.clients)
    tiles = [
        (f"test accuracy, mean of the last {min(10, len(run.rounds))} rounds", percent(mean)),
        ("test accuracy, best round", percent(best.accuracy)),
        ("of all training labels are wrong", percent(wrong / samples if samples else None)),
        ("correlation (Pearson) of estimated and true noise rates", number(known.noise_rate_pearson)),
        ("of the clean-or-wrong verdicts are right", percent(known.mislabel_accuracy)),
        ("area under the ROC of the clean-or-wrong ranking", number(known.mislabel_auc)),
        ("of the wrong labels are memorised by the model", percent(known.memorised_share)),
    ]
    cells = "".join(f"<div><dt>{escape(what)}</dt><dd>{value}</dd></div>\n" for what, value in tiles if value != ABSENT)
    return f'<dl class="tiles">\n{cells}</dl>\n'


def _figures(run: RunData, names: Sequence[str]) -> str:
    figures = [
        figure(run.folder / "figures" / kind.file, alt=kind.alt, caption=kind.caption)
        for kind in FIGURES
        if kind.file in names
    ]
    return "<section>\n<h2>Figures</h2>\n" + "\n".join(figures) + "\n</section>" if figures else ""


def _cost(run: RunData) -> str:
    """Seconds by phase, bytes and client updates."""
    if not run.rounds:
        return ""
    phases = seconds_by_phase(run)
    total = run.summary.seconds if run.summary is not None else sum(phases.values())
    up, down = sum(r.bytes_up for r in run.rounds), sum(r.bytes_down for r in run.rounds)
    updates = sum(r.client_updates for r in run.rounds)
    rows = [(name, duration(s), percent(s / total if total > 0 else None)) for name, s in phases.items()]
    rest = total - sum(phases.values())
    if rest >= 0.05:
        rows.append(("everything else (loading, saving)", duration(rest), percent(rest / total)))
    return (
        f"<section>\n<h2>What the run cost</h2>\n<p>{len(run.rounds)} rounds took {duration(total)} and "
        f"{updates:,} local trainings. The clients sent {data_size(up)} in all, the server {data_size(down)}.</p>\n"
        + table(("Phase", "Time", "Share"), rows)
        + "\n</section>"
    )


def _privacy(claims: Sequence[PrivacyClaim]) -> str:
    """Every claim, in words and in full; what no claim covers counts as unprotected."""
    intro = (
        "<p>This is what a server learns that follows the protocol but reads everything it receives. "
        "Anything that is not listed here is to be taken as unprotected.</p>"
    )
    if not claims:
        intro += '\n<p class="warn">The run makes no privacy claim: assume that everything is visible.</p>'
    elif not any("weight" in claim.subject for claim in claims):
        intro += '\n<p class="warn">No claim covers the model weights: assume that they are not protected.</p>'
    blocks = "".join("\n" + claim_block({claim: ""}) for claim in claims)
    return f"<section>\n<h2>Privacy: what the server sees</h2>\n{intro}{blocks}\n</section>"


def claim_block(claims: Mapping[PrivacyClaim, str]) -> str:
    """Claims on one subject that mean the same, each in full and, where a page has several, with whose it is."""
    first = next(iter(claims))
    full = "".join(
        f"<p><code>{escape(str(claim))}</code></p>\n" + (f'<p class="note">{escape(whose)}</p>\n' if whose else "")
        for claim, whose in claims.items()
    )
    words = f"<h3>{escape(first.subject)}</h3>\n<p>{escape(claim_words(first))}</p>"
    return f'<div class="claim">\n{words}\n{full}</div>'


def claim_words(claim: PrivacyClaim) -> str:
    """What a claim means, for somebody who has not met epsilon."""
    if claim.epsilon is not None:
        return (
            "Random noise hides the single sample: the smaller epsilon, the less the server can learn about it. "
            "The number holds only together with everything on the next line."
        )
    if claim.channel == "plain":
        return "The server sees these exactly as each client sends them. Nothing hides them."
    return f"These travel over the channel '{claim.channel}', but no random noise hides a single sample."


def _last_rounds(run: RunData) -> str:
    if not run.rounds:
        return ""
    head = (
        *("Round", "Stage", "Test accuracy", "Test loss (nats)", "Estimated noise", "Noise-rate Pearson"),
        *("Verdicts right", "Wrong labels memorised", "Sent by clients"),
    )
    rows = [
        (
            str(r.round + 1),
            r.stage,
            percent(r.accuracy),
            number(r.test_loss),
            percent(r.estimated_noise),
            number(r.noise_rate_pearson),
            percent(r.mislabel_accuracy),
            percent(r.memorised_share),
            data_size(r.bytes_up),
        )
        for r in run.rounds[-LAST_ROUNDS:]
    ]
    used = [i for i in range(len(head)) if any(row[i] != ABSENT for row in rows)]
    last = table([head[i] for i in used], [[row[i] for i in used] for row in rows])
    note = "Rounds are counted from 1 here, and from 0 in rounds.jsonl; a dash means: not measured in that round."
    return f'<section>\n<h2>The last rounds</h2>\n{last}\n<p class="note">{note}</p>\n</section>'


def _clients(run: RunData) -> str:
    if not run.clients:
        return ""
    head = ("Client", "Samples", "Noise", "Drawn rate", "True rate", "Estimated rate", "Rounds taken part in")
    rows = [
        (
            str(c.client),
            str(c.samples),
            c.noise_kind,
            percent(c.drawn_rate),
            percent(c.realised_rate),
            percent(c.estimated_rate),
            str(c.participations),
        )
        for c in run.clients
    ]
    note = (
        "The true rate is the share of the client's labels that differ from the data set's true ones, which only the "
        "evaluation may look at; the drawn rate is what synthetic noise was asked for."
    )
    return (
        f"<section>\n<h2>Clients</h2>\n<p>{note}</p>\n<details>\n<summary>Show all {len(rows)} clients</summary>\n"
        f"{table(head, rows)}\n</details>\n</section>"
    )


def _reproduce(run: RunData) -> str:
    """The command, the resolved configuration and the versions."""
    command = run.manifest.command
    given = (
        f"<p>The run was started with:</p>\n<pre>{escape(shlex.join(['fedgr-secure', *command]))}</pre>\n"
        if command is not None
        else "<p>The run was started from Python.</p>\n"
    )
    versions = table(("Software", "Version"), list(run.manifest.versions.items()))
    return (
        f"<section>\n<h2>How to reproduce this run</h2>\n{given}"
        "<p>Or save the full configuration below as <code>config.toml</code> and give another output folder:</p>\n"
        "<pre>fedgr-secure run config.toml --out again</pre>\n"
        "<p>Every random draw follows from the seed, but for keys and privacy noise, which are the system's; other "
        "versions or another device can change the last digits.</p>\n"
        f"{versions}\n<details>\n<summary>Full configuration (TOML)</summary>\n"
        f"<pre>{escape(to_toml(run.config))}</pre>\n</details>\n</section>"
    )
