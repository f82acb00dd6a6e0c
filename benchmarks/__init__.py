"""Scripts that produce the project's published tables. Run them from the checkout: `python -m benchmarks.NAME --help`."""
