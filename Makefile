PYTHON ?= python

.PHONY: check lint types contracts test slow browser

check: lint types contracts test

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

contracts:
	lint-imports

test:
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest

slow:
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m slow

browser:
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 0 -m browser tests/browser
