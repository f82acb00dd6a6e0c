"""What an honest but curious server knows after a run: its recorded view, its own models, and what is public.

Public are the configuration (method, plan, channel), who was drawn in which round, how many samples each client has,
and how models and losses are computed. Nothing here reads a client's images, labels or states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from attacks.models import sent_models
from attacks.observed import Observed, observe
from attacks.statements import Said, read_said
from attacks.view import open_view
from fedgr_secure.aggregate import check_weights
from fedgr_secure.checks import check
from fedgr_secure.data.types import UInt8
from fedgr_secure.errors import InputError, require
from fedgr_secure.federation.federation import prepare
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.view import ServerView
from fedgr_secure.method.messages import Counted, Proxies, Revise
from fedgr_secure.method.sieve import Mixture
from fedgr_secure.sections import Config
from fedgr_secure.training import Workbench
from fedgr_secure.wire import Weights
from privacy.channels.channel import Channel, RowChannel, Upload, UploadError
from privacy.claims import PrivacyClaim

LogProbabilities = NDArray[np.float32]
"""float32 (rounds, n, classes), of n images under the global model of each round"""


@dataclass(frozen=True)
class Release:
    """A secure sum of counts that the server opened.

    Attributes:
        round: from 0.
        counts: int64 (bins,).
        contributors: whose counts are in it.
    """

    round: int
    counts: NDArray[np.int64]
    contributors: tuple[int, ...]


@dataclass(frozen=True)
class Knowledge:
    """Everything that an attack may use.

    Attributes:
        config: the public plan.
        channel: of the loss proxies.
        sizes: samples of each client.
        measured: the clients that measured their losses, by round; who vanished before did not.
        counted: the clients that sent counts into a secure sum, by round, also where that was given up.
        models: the global weights that each round began with; under the number of rounds, the final ones.
        uploads: what each client sent in the clear, by client, with the rounds.
        releases: the secure sums of counts.
        mixture: the newest that the server sent to everybody; None where it sent none.
        claims: what the run promises.
        bench: computes predictions.
        classes: of the data.
        said: what clients said beside models and loss proxies.
        trained: by client, the newest model that came up in the clear, and the one that it was trained from; where
            clients' weights were recorded.
    """

    config: Config
    channel: Channel
    sizes: tuple[int, ...]
    measured: Mapping[int, frozenset[int]]
    counted: Mapping[int, frozenset[int]]
    models: Mapping[int, Weights]
    uploads: Mapping[int, tuple[tuple[int, Upload], ...]]
    releases: tuple[Release, ...]
    mixture: Mixture | None
    claims: tuple[PrivacyClaim, ...]
    bench: Workbench
    classes: int
    said: Said
    trained: Mapping[int, tuple[Weights, Weights]]

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The rounds whose model is known, in order."""
        return tuple(sorted(self.models))

    def drawn(self, client: int) -> list[int]:
        """The rounds in which a client measured its losses, as positions in `rounds`."""
        return [place for place, number in enumerate(self.rounds) if client in self.measured.get(number, ())]

    @property
    def largest(self) -> float:
        """Nats; what a client clips each loss to."""
        cap, largest = self.config.fedgr.loss_cap, self.channel.largest
        return largest if cap is None else min(largest, cap * float(np.log(self.classes)))

    @cached_property
    def observed(self) -> dict[int, Observed]:
        """The rows of each client that sent any.

        Raises:
            InputError: clients also fold losses under their own models in, which the server does not have.
        """
        require(
            not self.config.fedgr.local_observation,
            "local_observation: on, allowed for attacks on rows: off (running means hold losses of local models)",
        )
        found = {}
        for client, sent in self.uploads.items():
            numbers = [self.rounds[place] for place in self.drawn(client)]
            at = [numbers.index(number) for number, _ in sent]
            found[client] = observe(self.channel, [upload for _, upload in sent], at, self.largest)
        return found

    def claim(self, subject: str) -> PrivacyClaim | None:
        """The run's claim about something; None where there is none."""
        return next((claim for claim in self.claims if claim.subject == subject), None)

    def log_probabilities(self, images: UInt8) -> LogProbabilities:
        """What every global model says of images."""
        found = np.empty((len(self.rounds), len(images), self.classes), np.float32)
        for place, number in enumerate(self.rounds):
            found[place] = self.log_shares(self.models[number], images)
        return found

    def log_shares(self, weights: Weights, images: UInt8) -> NDArray[np.float64]:
        """What a model says of images, float64 (n, classes)."""
        import torch.nn.functional as F

        found: NDArray[np.float64] = F.log_softmax(self.bench.predict(weights, images).logits.double(), dim=1).numpy()
        return found

    def features(self, round: int, images: UInt8) -> NDArray[np.float64]:
        """Of images, float64 (n, d), under the global model that a round ended with."""
        found: NDArray[np.float64] = self.bench.predict(self.models[round + 1], images).features.double().numpy()
        return found


def losses_of(known: LogProbabilities, labels: NDArray[np.int64], image: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cross-entropy of images (positions in `known`) with labels under every model, float64 (rounds, n) in nats."""
    return -known[:, image, labels].astype(np.float64)


def know(run: Path) -> Knowledge:
    """The server's knowledge of a finished run whose view was recorded.

    Raises:
        InputError: no finished run, no view, or a damaged one.
    """
    folder = RunFolder(run)
    config = check(folder.config())
    require(folder.finished, f"run folder: {run} is not finished; fedgr-secure resume {run}")
    view, records = open_view(run), folder.rounds()
    federation = prepare(config, folder)
    sizes = tuple(len(shard) for shard in federation.data.shards)
    cohorts = {record.round: record.cohort for record in records}
    models = sent_models(view) | {len(records): folder.weights()}
    for record in reversed(records):
        if record.round not in models and not record.client_updates and record.round + 1 in models:
            models[record.round] = models[record.round + 1]  # nobody was asked, and the model stayed
    lost = [number for number in cohorts if number not in models]
    require(
        not lost, f"server view: {view.folder} holds no global model of round {lost[:1]}, allowed: one of every round"
    )
    reader = _Reader(view, federation.channel, sizes, cohorts)
    sent, releases = reader.uploads()
    stayed = {record.round: record.survivors for record in records}
    for number, weights in models.items():
        check_weights(weights, federation.bench.weights(), who=f"{run}: global model of round {number}")
    return Knowledge(
        config=config,
        channel=federation.channel,
        sizes=sizes,
        measured={number: reader.measured(number, stayed[number]) for number in cohorts},
        counted={number: frozenset(view.senders(number, "CountsMasked")) for number in cohorts},
        models=models,
        uploads=sent,
        releases=releases,
        mixture=_mixture(view),
        claims=folder.manifest().privacy,
        bench=federation.bench,
        classes=federation.data.spec.classes,
        said=read_said(view, sizes, cohorts, federation.data.spec.classes),
        trained=_trained(view, federation.bench.weights(), cohorts),
    )


def _trained(
    view: ServerView, like: Weights, cohorts: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[Weights, Weights]]:
    """Every client's newest local model, with the one that it was trained from."""
    kinds = [kind for kind in view.kinds if "weights" in kind.__dataclass_fields__]
    found: dict[int, tuple[Weights, Weights]] = {}
    for number in reversed(view.rounds()):
        new = view.senders(number, "Update") - found.keys()
        seen = view.messages(number, kinds) if new else []
        sent = {one.client: one.message.weights for one in seen if one.up}
        received: dict[int | None, Weights] = {
            one.client: one.message.weights for one in seen if not one.up and one.message.weights is not None
        }
        for client in sorted(new):
            where = f"server view: {view.folder}: round {number}, client {client}"
            require(client in cohorts.get(number, ()), f"{where}: Update, allowed: of the round's cohort")
            found[client] = received.get(client, received.get(None, {})), sent[client]
            for weights in found[client]:
                check_weights(weights, like, who=where)
    return dict(sorted(found.items()))


def _mixture(view: ServerView) -> Mixture | None:
    """The newest that went to everybody."""
    for number in reversed(view.rounds()):
        for seen in view.messages(number, [Revise]):
            mixture: Mixture | None = seen.message.mixture
            if mixture is not None:
                return mixture
    return None


@dataclass(frozen=True)
class _Reader:
    """Reads a view, and refuses what no run of this plan could have left in it."""

    view: ServerView
    channel: Channel
    sizes: tuple[int, ...]
    cohorts: Mapping[int, tuple[int, ...]]

    def measured(self, number: int, stayed: tuple[int, ...] | None) -> frozenset[int]:
        """Who measured its losses: who sent rows, counts or a masked update; in the clear, who was averaged."""
        kinds = ("Proxies", "CountsMasked", "SumMasked")
        sent = set().union(*(self.view.senders(number, kind) for kind in kinds))
        in_the_clear = not self.view.senders(number, "SumAdvert")
        return frozenset(sent | set(self.cohorts[number] if stayed is None else stayed) if in_the_clear else sent)

    def uploads(self) -> tuple[dict[int, tuple[tuple[int, Upload], ...]], tuple[Release, ...]]:
        """What came up in the clear, and the sums.

        Raises:
            InputError: an upload or a sum that this plan does not have.
        """
        sent: dict[int, list[tuple[int, Upload]]] = defaultdict(list)
        releases = []
        for number in self.view.rounds():
            for seen in self.view.messages(number, [Proxies, Counted]):
                if isinstance(seen.message, Counted):
                    releases.append(self._release(number, seen.message))
                elif seen.client is not None and seen.up:
                    self._check_rows(number, seen.client, seen.message.upload)
                    sent[seen.client].append((number, seen.message.upload))
        return {client: tuple(rows) for client, rows in sorted(sent.items())}, tuple(releases)

    def _release(self, number: int, message: Counted) -> Release:
        who = tuple(int(client) for client in message.contributors)
        cohort, bins = set(self.cohorts.get(number, ())), getattr(self.channel, "bins", 0)
        fits = who and len(set(who)) == len(who) and set(who) <= cohort and len(message.counts) == bins
        require(
            bool(fits),
            f"server view: {self.view.folder}: round {number}: {len(message.counts)} counts of clients "
            f"{list(who)[:5]}, allowed: {bins} of clients of the round's cohort",
        )
        return Release(number, message.counts, who)

    def _check_rows(self, number: int, client: int, upload: Upload) -> None:
        """One client's rows, as the server itself would take them."""
        where = f"server view: {self.view.folder}: round {number}"
        require(client in self.cohorts.get(number, ()), f"{where}: rows of client {client}, allowed: of its cohort")
        require(hasattr(self.channel, "rows"), f"{where}: rows of client {client}, allowed: none with this channel")
        try:
            found = cast(RowChannel, self.channel).rows(client, upload)
        except UploadError as error:
            raise InputError(f"{where}: {error}") from None
        require(
            len(found.values) == self.sizes[client],
            f"{where}: client {client}: {len(found.values)} rows, allowed: {self.sizes[client]}",
        )
