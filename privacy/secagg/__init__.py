"""Pairwise-masked secure sums (Bonawitz et al. 2017; Bell et al. 2020). Imports nothing of the rest of the project.

Client and server are state machines without I/O: bytes in, bytes out, one phase at a time. `Wire` moves them within
one process; a network moves the same bytes.

>>> import numpy as np
>>> from privacy.secagg import *
>>> layout = Layout((Group("w", size=3, limit=1.0),), clients=3, largest_weight=10)
>>> parameters = Parameters.for_cohort(layout)
>>> identities = {number: Identity.generate(SystemEntropy()) for number in range(3)}
>>> enrolled = Enrolment({number: identity.public for number, identity in identities.items()})
>>> context = sum_context(b"session", 0, "weights", parameters, model=b"digest of the global model")
>>> everyone = {"enrolled": enrolled, "parameters": parameters, "context": context}
>>> clients = {
...     number: SecureSumClient(number, identity, policy=Policy.of(parameters), weight=1 + number, **everyone)
...     for number, identity in identities.items()
... }
>>> def contribute(number):
...     return Contribution({"w": np.array([0.25, -0.5, number])}, np.random.default_rng(number))
>>> total = Wire(SecureSumServer(**everyone), clients, contribute).run()
>>> total.weight, total.means["w"].round(4).tolist(), total.clipped
(6, [0.25, -0.5, 0.8333], {'w': 1})
"""

from privacy.secagg.client import Phase, SecureSumClient
from privacy.secagg.entropy import Entropy, InsecureSeededEntropy, SystemEntropy
from privacy.secagg.errors import AbortError, ConfigurationError, MessageError, PhaseError, SecAggError
from privacy.secagg.groups import Group, Layout, Total
from privacy.secagg.keys import Enrolment, Identity
from privacy.secagg.local import Contribution, PhaseCost, Wire
from privacy.secagg.parameters import Parameters, Policy, default_colluders, sum_context
from privacy.secagg.server import SecureSumServer

__all__ = [
    "AbortError",
    "ConfigurationError",
    "Contribution",
    "Enrolment",
    "Entropy",
    "Group",
    "Identity",
    "InsecureSeededEntropy",
    "Layout",
    "MessageError",
    "Parameters",
    "Phase",
    "PhaseCost",
    "PhaseError",
    "Policy",
    "SecAggError",
    "SecureSumClient",
    "SecureSumServer",
    "SystemEntropy",
    "Total",
    "Wire",
    "default_colluders",
    "sum_context",
]
