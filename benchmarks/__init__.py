"""Scripts that produce the project's published tables. From the checkout: `python -m benchmarks.NAME --help`."""
