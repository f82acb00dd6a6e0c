"""The privacy/utility trade-off: a grid of runs, attacked and audited, as one table and one report."""
