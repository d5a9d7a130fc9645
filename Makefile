# One command per habit. `make demo` and `make test` need Python 3.11+, Java 17 or 21 and git, and make the rest themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help install demo test check chaos soak bench lint types unit integration format lock clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(INSTALLED)  ## Only the virtual environment, .venv; jars are fetched when they are first needed

demo: $(INSTALLED)  ## Everything on this machine in about four minutes, with proof at the end
	$(BIN)/headgate demo

test: check integration  ## All tests: what check does, then a real broker, Spark and lake, then short chaos

check: lint types unit  ## The fast tier: style, types, import contracts, unit and property tests

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED)
	$(BIN)/mypy

unit: $(INSTALLED)
	$(BIN)/python -m pytest -q -n auto tests/unit tests/property

integration: $(INSTALLED)
	$(BIN)/python -m pytest -q tests/integration tests/chaos -m "not slow"

chaos: $(INSTALLED)  ## Kills, pauses and restarts at length; SEED=n MINUTES=n
	$(BIN)/python -m pytest -q tests -m slow
	$(BIN)/python -m tests.chaos.long $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),30)

soak: $(INSTALLED)  ## An hour of load, faults and upkeep, judged in docs/soak.md; SEED=n MINUTES=n REPORT=file
	$(BIN)/python -m tests.chaos.soak $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),60) --report $(or $(REPORT),docs/soak.md)

bench: $(INSTALLED)  ## Speed, as ratios against a named peer in the same run; ONLY="names", SAVE=1 to keep them if good, ACCEPT=1 whatever they are
	$(BIN)/python -m benchmarks $(ONLY) $(if $(SAVE),--save) $(if $(ACCEPT),--accept)

format: $(INSTALLED)  ## Rewrite the code in the house format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: $(INSTALLED)  ## Pin all dependencies anew, with hashes and without any index address
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q pyproject.toml --extra dev --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header -o requirements.txt

clean:  ## Remove what the commands above made
	rm -rf $(VENV) headgate-demo build src/*.egg-info

$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "headgate: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1); install it, or run make PYTHON=/path/to/python3.11"; exit 1; }
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || \
		{ echo "headgate: Java 17 or 21 is needed and not on the PATH; install a JDK or JRE (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }
	@test $$(df -Pk . | awk 'NR==2 {print $$4}') -gt 3000000 || \
		{ echo "headgate: less than 3 GB of disk is free here; the set-up needs that much"; exit 1; }
	@echo "setting up $(VENV) (once, a minute or two)"
	$(PYTHON) -m venv $(VENV) || { echo "headgate: cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
