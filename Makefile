# Two commands do everything from nothing: `make run` (the main job) and `make test` (all checks).
# The environment in .venv/ is built on first use and again whenever pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.torchledger-stamp
EXTRAS := torch,tokenize,data,symbolic,web,hf,dev

.DEFAULT_GOAL := help
.PHONY: help run test lint format types imports check-tests proof bench docs validation zoo audits folds presets clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "torchledger needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

run: $(STAMP)  ## the main job: predict, train, measure and reconcile a small language model
	$(BIN)/torchledger prepare stdlib --out data/stdlib --force
	$(BIN)/torchledger train

test: lint types imports check-tests  ## format, lint, types, import contracts, tests

lint: $(STAMP)  ## format and lint, nothing rewritten
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(STAMP)  ## rewrite the files as the formatter wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: $(STAMP)  ## strict type check
	$(BIN)/mypy

imports: $(STAMP)  ## the two import contracts
	$(BIN)/lint-imports

check-tests: $(STAMP)  ## the tests alone
	$(BIN)/pytest src tests --numprocesses 2 --dist worksteal

proof: $(STAMP)  ## the slow proofs
	$(BIN)/pytest tests -m proof

bench: $(STAMP)  ## side-by-side benchmarks, ratios printed
	@for bench in bench/*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

docs: $(STAMP)  ## regenerate docs/cli.md, docs/validation.md and docs/gpu-memory.md
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_validation.py
	$(BIN)/python docs/generate_gpu_memory.py
	$(BIN)/python docs/generate_memory_validation.py

validation: $(STAMP)  ## predict every published measurement and write docs/validation-time.md (a minute or two)
	$(BIN)/python docs/generate_time_validation.py

audits: $(STAMP)  ## audit our trained model and three of transformers, with plots (docs/audits-examples.md)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt vl-convert-python
	$(BIN)/python docs/generate_audits.py

presets: $(STAMP)  ## run a step of every preset that has no row in docs/presets-books.md yet and fits in 6 GB
	$(BIN)/python docs/generate_presets_books.py

folds: $(STAMP)  ## fit the planner's constants with each family of published sources left out (two minutes)
	$(BIN)/python docs/fit_constants.py

zoo: $(STAMP)  ## trace every model of the zoo and write docs/zoo.csv and docs/zoo.md (some minutes)
	$(BIN)/python docs/generate_zoo.py

clean:  ## remove the environment and every cache (never runs/ or data/)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
