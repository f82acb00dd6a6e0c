"""What can go wrong in a secure sum. No message ever holds a key, a seed, a share or a masked value."""

from __future__ import annotations


class SecAggError(ValueError):
    """A secure sum cannot be set up or cannot go on; the base of the errors below."""


class ConfigurationError(SecAggError):
    """Parameters that cannot work or that promise less than they must: named with their value and what is allowed."""


class MessageError(SecAggError):
    """Bytes that are no message of this phase, session, round, sender or receiver. Nothing was released."""


class PhaseError(SecAggError):
    """A state machine was called out of order, a second time, or after it ended."""


class AbortError(SecAggError):
    """The sum ends without a result: too few are left, or the server's answers contradict each other."""
