"""What an attack may read: the recorded server view of a run, as arrays."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedgr_secure.errors import InputError
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.federation.view import ServerView
from fedgr_secure.method.messages import Proxies
from fedgr_secure.registry import METHODS


def open_view(run: Path) -> ServerView:
    """The recorded view of a run.

    Raises:
        InputError: no run folder, or nothing was recorded.
    """
    folder = RunFolder(run)
    view = ServerView(folder.view, METHODS[folder.config().method].messages)
    view.rounds()
    return view


def proxy_series(view: ServerView) -> dict[int, NDArray[np.float64]]:
    """Per client the plain proxies of all its participations, float64 (T, n_k), in the order of the rounds.

    Raises:
        InputError: nothing was recorded, a message is damaged, or a client's uploads have other lengths than its first.
    """
    rows: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
    for number in view.rounds():
        for seen in view.messages(number, [Proxies]):
            if seen.client is not None and seen.up and "proxies" in seen.message.upload:
                row = seen.message.upload["proxies"]
                wanted = rows[seen.client][0].shape if rows[seen.client] else row.shape[:1]
                if row.shape != wanted or row.ndim != 1:
                    raise InputError(
                        f"server view: {view.folder}: round {number}, client {seen.client}: proxies of shape "
                        f"{list(row.shape)}, allowed: one vector, as long as the client's others"
                    )
                rows[seen.client].append(row.astype(np.float64))
    return {client: np.stack(series) for client, series in sorted(rows.items())}
