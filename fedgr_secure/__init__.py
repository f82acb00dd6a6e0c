"""FedGR: federated learning with wrong labels, with its messages measured, bounded and closed.

>>> import fedgr_secure
>>> fedgr_secure.Config().method
'fedgr'
"""

from __future__ import annotations

import importlib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgr_secure.config import override
from fedgr_secure.sections import Config

if TYPE_CHECKING:
    from fedgr_secure.federation.loop import Result, resume, run
    from fedgr_secure.federation.view import ServerView
    from fedgr_secure.method.client import FedGRClient
    from fedgr_secure.method.evidence import NoisyCounts, NoisyValues
    from fedgr_secure.method.fit import fit_evidence
    from fedgr_secure.method.server import FedGRServer
    from fedgr_secure.method.sieve import Mixture, fit_mixture, judge
    from fedgr_secure.registry import METHODS
    from privacy.channels.plain import PlainProxies

__all__ = [
    "METHODS",
    "Config",
    "FedGRClient",
    "FedGRServer",
    "Mixture",
    "NoisyCounts",
    "NoisyValues",
    "PlainProxies",
    "Result",
    "ServerView",
    "fit_evidence",
    "fit_mixture",
    "judge",
    "override",
    "resume",
    "run",
]

_LAZY = {
    "METHODS": "fedgr_secure.registry",
    "FedGRClient": "fedgr_secure.method.client",
    "FedGRServer": "fedgr_secure.method.server",
    "Mixture": "fedgr_secure.method.sieve",
    "NoisyCounts": "fedgr_secure.method.evidence",
    "NoisyValues": "fedgr_secure.method.evidence",
    "PlainProxies": "privacy.channels.plain",
    "Result": "fedgr_secure.federation.loop",
    "ServerView": "fedgr_secure.federation.view",
    "fit_evidence": "fedgr_secure.method.fit",
    "fit_mixture": "fedgr_secure.method.sieve",
    "judge": "fedgr_secure.method.sieve",
    "resume": "fedgr_secure.federation.loop",
    "run": "fedgr_secure.federation.loop",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package stays cheap."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _warn_of_foreign_packages() -> None:
    """`privacy` and `attacks` are generic names: say so when something else answers to them."""
    home = Path(__file__).resolve().parent.parent
    for name in ("privacy", "attacks"):
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if found != home:
            where = found / name if found else "nowhere"
            warnings.warn(
                f"the package {name!r} of fedgr-secure is shadowed: Python finds it in {where}, expected {home / name}",
                ImportWarning if found is None else RuntimeWarning,
                stacklevel=3,
            )


_warn_of_foreign_packages()
