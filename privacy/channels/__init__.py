"""How loss proxies reach the server: plain, noisy, or as a secure histogram."""

from privacy.budget import Budget, Schedule
from privacy.channels.channel import Channel, Losses, Memory
from privacy.channels.histogram import HistogramProxies
from privacy.channels.noisy import NoisyProxies
from privacy.channels.plain import PlainProxies
from privacy.mechanisms import Grid, SystemNoise

__all__ = [
    "Budget",
    "Channel",
    "Grid",
    "HistogramProxies",
    "Losses",
    "Memory",
    "NoisyProxies",
    "PlainProxies",
    "Schedule",
    "SystemNoise",
]
