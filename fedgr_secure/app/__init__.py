"""The composition root: command line, sweeps, reports. Nothing imports it."""
