"""FedGR as a method: its two halves, its messages and what it promises."""

from __future__ import annotations

from fedgr_secure.context import ClientContext, Method, ServerContext
from fedgr_secure.messages import Update
from fedgr_secure.method.client import FedGRClient, FedGRState, verdict_of
from fedgr_secure.method.messages import Counted, Observe, Proxies, Revise
from fedgr_secure.method.server import FedGRServer, FedGRServerState
from fedgr_secure.method.stored import check_client, check_server
from fedgr_secure.sections import Config
from privacy.channels.channel import Channel
from privacy.claims import PrivacyClaim


def _client(context: ClientContext, state: FedGRState | None) -> FedGRClient:
    return FedGRClient(context, state)


def _server(context: ServerContext, state: FedGRServerState | None) -> FedGRServer:
    return FedGRServer(context, state)


def _claims(config: Config, channel: Channel, weights: PrivacyClaim) -> tuple[PrivacyClaim, ...]:
    proxies = channel.claims() if config.fedgr.sieve else ()
    return (*proxies, weights)


FEDGR = Method(
    name="fedgr",
    source="FedGR, ICML 2026, arXiv 2412.00452",
    stages="warm-up on the given labels; then sieve, refine labels, revise the teacher, distil",
    uploads="loss proxies: noisy counts in a histogram, a noisy number per sample, or the losses themselves",
    under_secure_sum="the model and histograms; not what the channels plain and noisy upload",
    client=_client,
    server=_server,
    messages=(Observe, Proxies, Counted, Revise, Update),
    client_state=FedGRState,
    server_state=FedGRServerState,
    claims=_claims,
    verdict=verdict_of,
    releases=lambda state: state.releases,
    mean_losses=lambda state: state.mean_losses,
    check_client=check_client,
    check_server=check_server,
)
