# Two commands matter: `make demo` and `make test`. Both need Python 3.11+ and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint format lock clean

demo: $(STAMP)
	$(BIN)/stepscope demo

test: lint
	$(BIN)/pytest

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The lock names versions and hashes only; the index is the one pip is set up with.
$(STAMP): requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

lock:
	$(PYTHON) -m venv .lock-venv && .lock-venv/bin/python -m pip install --quiet uv
	.lock-venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
		--no-emit-index-url --extra embedded --group dev pyproject.toml -o requirements/dev.lock \
		--custom-compile-command "make lock"
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
