"""The baselines' settings, and what their published algorithms cannot do. Imports neither torch nor numpy."""

from __future__ import annotations

UNSUMMED: dict[str, str] = {}
"""methods whose weights cannot travel under a secure sum, and why"""

UNPRIVATE: dict[str, str] = {}
"""methods that cannot be trained by DP-SGD, and why"""
