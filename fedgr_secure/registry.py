"""The methods by name.

A new method is a file and a line here, and its name in `sections.Method` and in `app.tables.METHOD_NAMES`; a test holds
the three against each other.
"""

from __future__ import annotations

from fedgr_secure.baselines.coteaching import COTEACHING
from fedgr_secure.baselines.dividemix import DIVIDEMIX
from fedgr_secure.baselines.fedavg import CENTRAL, FEDAVG, FEDPROX
from fedgr_secure.baselines.fedcorr import FEDCORR
from fedgr_secure.baselines.feddiv import FEDDIV
from fedgr_secure.baselines.fedelc import FEDELC
from fedgr_secure.baselines.fedfixer import FEDFIXER
from fedgr_secure.baselines.fednoro import FEDNORO
from fedgr_secure.baselines.rofl import ROFL
from fedgr_secure.context import Method
from fedgr_secure.method.fedgr import FEDGR

_ALL = (
    FEDGR,
    FEDAVG,
    FEDPROX,
    CENTRAL,
    COTEACHING,
    FEDNORO,
    DIVIDEMIX,
    FEDELC,
    FEDFIXER,
    FEDDIV,
    ROFL,
    FEDCORR,
)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
