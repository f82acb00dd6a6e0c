"""Cohorts, runners, stores, the server's view, checkpoints and the run loop."""
