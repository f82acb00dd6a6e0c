"""The report's part on secure sums and releases: whose updates were in them, what they cost, what they spent."""

from __future__ import annotations

from html import escape

from fedgr_secure.app.figures import seconds_by_phase
from fedgr_secure.app.html import table
from fedgr_secure.app.runfolder import RunData
from fedgr_secure.app.tables import data_size, duration
from fedgr_secure.records import SumRecord

PHASE = "secure sum: "
"""what the timings of its phases begin with"""


def secure_section(run: RunData) -> str:
    """Survivors, rounds that were given up, clipping, bytes and seconds; empty for a run in the clear."""
    sums = [record.secure_sum for record in run.rounds if record.secure_sum is not None]
    if not sums:
        return ""
    return f"<section>\n<h2>Secure sums of the weights</h2>\n{_words(run, sums)}\n{_costs(run, sums)}\n</section>"


def release_section(run: RunData) -> str:
    """What a private channel released, and what that has spent; empty for the plain channel."""
    released = [record.release for record in run.rounds if record.release is not None]
    if not released:
        return ""
    charged: dict[str, int] = {}
    for one in released:
        charged |= one.releases
    most, spent = max(charged.values()), [one.epsilon for one in released if one.epsilon is not None]
    settings = run.config.proxies
    once = settings.channel == "noisy" and settings.noising == "once"
    allowed = 1 if once else settings.releases
    price = "which protects nothing: noise or masks come from the seed of the run"
    if spent:
        price = f"epsilon {max(spent):.3g} of {run.config.proxies.epsilon:g}"
    failed = sum(one.secure_sum is not None and one.secure_sum.aborted is not None for one in released)
    lost = f" {failed} of their secure sums were given up; who had counted by then is charged." if failed else ""
    words = (
        f"<p>Loss proxies were asked for in {len(released)} rounds. The busiest client was charged for {most} of "
        f"{allowed} releases, {price}.{lost} Another run on the same data spends anew, and the two add up.</p>"
    )
    return f"<section>\n<h2>Releases of loss proxies</h2>\n{words}\n</section>"


def warnings(run: RunData) -> list[str]:
    """What of the secure sums nobody should miss: given up, clipped, or with keys from a seed."""
    sums = [record.secure_sum for record in run.rounds if record.secure_sum is not None]
    failed = [one for one in sums if one.aborted is not None]
    clipped = sum(count for one in sums for count in one.clipped.values())
    found = []
    if failed:
        found.append(f"{len(failed)} sums were given up and left the model as it was; the last: {failed[-1].aborted}.")
    if clipped:
        found.append(f"{clipped:,} coordinates were beyond the public range and clipped.")
    if any(one.entropy != "system" for one in sums):
        found.append("Keys and masks came from the seed of the run: a simulation that hides nothing.")
    return found


def _words(run: RunData, sums: list[SumRecord]) -> str:
    newest, opened = sums[-1], [one for one in sums if one.aborted is None]
    drawn = sum(len(record.cohort) for record in run.rounds if record.secure_sum is not None)
    survived = sum(len(one.survivors) for one in opened)
    text = (
        f"<p>{len(opened)} of {len(sums)} sums were opened, over {survived:,} of {drawn:,} updates. "
        f"A client had {newest.neighbours} neighbours at most, of whose shares {newest.threshold} open a sum.</p>"
    )
    return text + "".join(f'\n<p class="warn">{escape(warning)}</p>' for warning in warnings(run))


def _costs(run: RunData, sums: list[SumRecord]) -> str:
    seconds = {name.removeprefix(PHASE): s for name, s in seconds_by_phase(run).items() if name.startswith(PHASE)}
    phases = list(dict.fromkeys(name for one in sums for name in one.bytes_up))
    rows = [
        (
            phase,
            data_size(sum(one.bytes_up.get(phase, 0) for one in sums)),
            data_size(sum(one.bytes_down.get(phase, 0) for one in sums)),
            duration(seconds.get(phase, 0.0)),
        )
        for phase in phases
    ]
    return table(("Phase", "Sent by clients", "Sent by the server", "Time of both"), rows)
