"""Randomness with addresses: every draw of a run comes from a generator keyed by (purpose, client, round).

Results therefore do not depend on the runner, on the order of clients, on the number of processes or on a resume.
Keys, masks and differential-privacy noise never come from here: they come from the operating system.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

NOBODY = -1


@dataclass(frozen=True)
class Randomness:
    """The root of a run's random draws.

    >>> root = Randomness(seed=7)
    >>> a = root.numpy("batches", client=3, round=2).integers(1000, size=4)
    >>> b = root.numpy("batches", client=3, round=2).integers(1000, size=4)
    >>> bool((a == b).all()), bool((a == root.numpy("batches", client=4, round=2).integers(1000, size=4)).all())
    (True, False)
    """

    seed: int

    def _sequence(self, purpose: str, client: int, round: int) -> np.random.SeedSequence:
        address = (zlib.crc32(purpose.encode()), client + 1, round + 1)
        return np.random.SeedSequence(entropy=self.seed, spawn_key=address)

    def numpy(self, purpose: str, *, client: int = NOBODY, round: int = NOBODY) -> np.random.Generator:
        """A NumPy generator that belongs to this address alone."""
        return np.random.Generator(np.random.PCG64(self._sequence(purpose, client, round)))

    def integer(self, purpose: str, *, client: int = NOBODY, round: int = NOBODY) -> int:
        """A 32-bit seed for a library that takes an integer (scikit-learn's `random_state`)."""
        return int(self._sequence(purpose, client, round).generate_state(1)[0])

    def torch(self, purpose: str, *, client: int = NOBODY, round: int = NOBODY) -> torch.Generator:
        """A torch CPU generator that belongs to this address alone."""
        import torch

        high, low = self._sequence(purpose, client, round).generate_state(2)
        return torch.Generator().manual_seed(int(high) << 31 | int(low) >> 1)
