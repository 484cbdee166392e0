# On a fresh machine: `make demo` sets everything up and runs the main job, `make test` sets up and tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
USER_STAMP := $(VENV)/.installed-for-use

.PHONY: help demo test check format bench clean

help:
	@echo "make demo    set up, then the whole story on the default suite (minutes on two CPU cores)"
	@echo "make test    set up, then all tests"
	@echo "make check   set up, then format, lint, strict types, import directions, docs into site/"
	@echo "make format  rewrite the code in the project's format"
	@echo "make bench   the benchmarks, as ratios measured in one run"
	@echo "make clean   remove what the commands above made"

INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What the product needs to run its main job: a first look should not wait for the developers' tools.
$(USER_STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[plot,data]'
	touch $(USER_STAMP)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[dev,docs,plot,data,export,web]'
	touch $(STAMP) $(USER_STAMP)

demo: $(USER_STAMP)
	$(BIN)/fewshift demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist loadfile

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict # --quiet would hide warnings from --strict
	$(BIN)/python -m pytest -q tests/test_imports.py tests/test_docs.py

format: $(STAMP)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/fewshift bench data

clean:
	rm -rf $(VENV) build dist site runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
