# Two commands for users: make run, make test. The rest is for those who change the project.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DATA ?= ../shared/measurements
PORT ?=

.PHONY: run test setup setup-dev lint accuracy speed fit constraints
.DEFAULT_GOAL := run

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[postgres]'
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install -q -c constraints.txt -e '.[postgres,trials,fit,dev]'
	touch $@

setup: $(VENV)/.core
setup-dev: $(VENV)/.dev

run: setup
	$(BIN)/meshwright serve $(if $(PORT),--port $(PORT))

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup-dev
	$(BIN)/pytest

accuracy: setup-dev
	$(BIN)/python -m tests.benchmarks.accuracy --data $(DATA) $(if $(JSON),--json $(JSON)) $(ARGS)

speed: setup-dev
	$(BIN)/python -m tests.benchmarks.speed $(if $(JSON),--json $(JSON)) $(ARGS)

fit: setup-dev
	$(BIN)/python -m tests.benchmarks.fit --data $(DATA) $(ARGS)

constraints:
	$(BIN)/pip-compile -q --all-extras --strip-extras --no-emit-index-url --no-emit-find-links \
	  --no-annotate --no-header -o constraints.txt pyproject.toml
	sed -i 's/^torch==\(.*\)+cpu/torch==\1/' constraints.txt
