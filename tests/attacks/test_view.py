"""From the recorded view of a run alone, the server gets every single loss back that the proxies averaged."""

import shutil

import numpy as np
import pytest

from attacks.inversion import single_losses
from attacks.view import open_view, proxy_series
from fedgr_secure.errors import InputError
from fedgr_secure.federation.federation import prepare
from fedgr_secure.federation.folder import RunFolder
from fedgr_secure.method.messages import Observe, Proxies
from fedgr_secure.method.server import FedGRServer
from fedgr_secure.wire import to_bytes

SETTINGS = {"record_view": "uploads", "rounds": 6, "warmup": 2}


@pytest.fixture(scope="module")
def run(finished):
    return finished(**SETTINGS)


@pytest.fixture(scope="module")
def series(run):
    return proxy_series(open_view(run.folder))


def test_a_series_has_one_row_per_participation_and_one_column_per_sample(run, series):
    for client in run.clients:
        assert series[client.client].shape == (client.participations, client.samples)
        assert series[client.client].dtype == np.float64
    assert max(client.participations for client in run.clients) >= 3  # else the inversion would be trivial


def test_inverted_proxies_are_the_losses_under_the_recorded_global_models(run, series, tiny):
    federation = prepare(tiny(**SETTINGS), RunFolder(run.folder))
    view, losses = open_view(run.folder), {client: [] for client in series}
    for record in run.rounds:
        (sent,) = view.messages(record.round, [Observe])
        for client in record.cohort:
            shard = federation.data.shards[client]
            losses[client].append(federation.bench.predict(sent.message.weights, shard.images()).losses(shard.labels))
    for client, means in series.items():
        wanted = np.stack(losses[client])
        count = np.arange(1, len(wanted) + 1)[:, None]
        # l_T = T m_T - (T-1) m_{T-1}, where each uploaded m is off by at most half a float32 step of its size
        rounding = np.finfo(np.float32).eps / 2 * 2 * count * means.max()
        assert (np.abs(single_losses(means) - wanted) <= rounding).all()
        if len(wanted) > 1:
            assert np.abs(means[-1] - wanted[-1]).max() > 1000 * rounding.max()  # the means themselves are not them


def test_a_view_without_proxies_has_no_series(finished):
    assert proxy_series(open_view(finished(method="fedavg", record_view="uploads", rounds=2).folder)) == {}
    assert proxy_series(open_view(finished(sieve=False, record_view="uploads", rounds=2).folder)) == {}


@pytest.mark.parametrize("proxies", [np.zeros(999, np.float32), np.zeros((2, 2), np.float32), np.float32(1)])
def test_uploads_of_other_lengths_are_refused_in_one_line(run, tmp_path, proxies):
    folder = shutil.copytree(run.folder, tmp_path / "copy")
    client = max(run.clients, key=lambda client: client.participations).client
    last = max(record.round for record in run.rounds if client in record.cohort)
    path = folder / "view" / f"round-{last:07d}" / f"Proxies.up.{client}"
    path.write_bytes(to_bytes(Proxies(last, {"proxies": np.asarray(proxies)})))
    with pytest.raises(InputError, match=rf"round {last}, client {client}: proxies of shape .*, allowed: one vector"):
        proxy_series(open_view(folder))


def test_a_run_without_a_view_or_a_folder_without_a_run_is_refused(finished, tmp_path):
    with pytest.raises(InputError, match="record one with --record-view uploads"):
        open_view(finished().folder)
    with pytest.raises(InputError, match="no run was started in it"):
        open_view(tmp_path)


def test_the_server_half_holds_nothing_of_the_clients_but_their_messages(run, tiny):
    federation = prepare(tiny(**SETTINGS), RunFolder(run.folder))
    assert isinstance(federation.server, FedGRServer)
    reachable = [type(value).__name__ for value in vars(federation.server).values()]
    assert sorted(reachable) == ["FedGRConfig", "FedGRServerState", "PlainProxies", "Randomness", "float"]
