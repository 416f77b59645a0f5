# `make demo` and `make test` each create the environment they need, in .venv.
# PYTHON picks the interpreter it is made with; 3.11 or newer. A distribution builds its own with
# profile-guided optimization, and what a version manager has built parses a quarter more slowly: the
# distribution's is taken where it can compile extensions, unless an environment is active.

SUITS  := import ensurepip, os, sys, sysconfig; \
          header = os.path.join(sysconfig.get_path("include"), "Python.h"); \
          sys.exit(sys.version_info < (3, 11) or not os.path.exists(header))
PYTHON ?= $(shell [ -z "$$VIRTUAL_ENV$$CONDA_PREFIX" ] && /usr/bin/python3 -c '$(SUITS)' 2>/dev/null \
            && echo /usr/bin/python3 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
# torch by its exact version and first: left to a dependency, pip may fetch another build of it.
TORCH  := torch==2.13.0
DEMO   ?= triton_layer_norm

# Some containers forbid it: every process of the tests would then compile all of the package anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test test-all lint types docs generate ci clean

help:
	@echo "make demo   run tile-agent on an example kernel to its end (DEMO=$(DEMO))"
	@echo "make test   the tests that find most faults, in a few minutes"
	@echo "make test-all  all tests"
	@echo "make lint   ruff: rules and formatting"
	@echo "make types  mypy"
	@echo "make docs   the documentation as a site, in build/site"
	@echo "make generate  the pages and references that are made from the program"
	@echo "make ci     lint, types, test-all and demo, as .ci/run does"

# Without compiling all of torch first, which takes as long as fetching it: what is imported is compiled then.
PIP    := $(BIN)/python -m pip install --quiet --no-compile

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --disable-pip-version-check --upgrade pip
	$(PIP) $(TORCH)
	$(PIP) --editable '.[triton]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) --editable '.[triton,cutile,dev,docs]'
	@touch $@

demo: $(VENV)/.demo
	./examples/demo.sh $(CURDIR)/$(BIN) $(DEMO)

# Neighbours share what they have set up; a worker that is done takes over half of another's rest.
# One more than there are processors: some tests wait for a deadline.
PYTEST := $(BIN)/python -m pytest -n $(shell expr $$(nproc) + 1) --dist worksteal

test: $(VENV)/.dev
	$(PYTEST) -m "not full"

# In one session: a second one would import and collect all of it again in every worker. With
# UNTIL=$$(($$(date +%s) + 900)) those marked `full` are run for as long as that leaves them.
test-all: $(VENV)/.dev
ifdef UNTIL
	$(PYTEST) -m "not full"
	$(PYTEST) -m full --until $(UNTIL)
else
	$(PYTEST)
endif

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict

generate: $(VENV)/.dev
	$(BIN)/python -m tools.cutile_api
	$(BIN)/python -m tools.pages

ci: lint types test-all demo

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache
