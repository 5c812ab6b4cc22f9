# What can be done here. Everything runs in .venv, which is made when it is needed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run demo test coverage lint format bench screenshots build pyz clean

help: ## show these targets
	@echo "gputop: a dashboard for NVIDIA GPUs"
	@echo
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 24
	@echo
	@echo "  make run ARGS='--refresh 500ms' passes arguments on."

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "gputop needs Python 3.11 or later, this is `$(PYTHON) --version`: try make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "No virtual environment could be made: is python3-venv installed?" >&2; rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/.runs: pyproject.toml | $(VENV)/.made
	@echo "Installing gputop into $(VENV) …" >&2
	@$(PIP) --editable . >&2
	@touch $@

$(VENV)/.tests: pyproject.toml | $(VENV)/.made
	@echo "Installing gputop and what its tests need into $(VENV) …" >&2
	@$(PIP) --editable '.[test]' >&2
	@touch $@ $(VENV)/.runs

run: $(VENV)/.runs ## the dashboard, on this machine's GPUs (simulated ones where there is no NVIDIA driver)
	@if [ -e /proc/driver/nvidia/version ] || \
		$(BIN)/python -c 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1")' 2>/dev/null; \
	then exec $(BIN)/gputop $(ARGS); \
	else echo "No NVIDIA driver here: starting a simulation (gputop --demo)." >&2; exec $(BIN)/gputop --demo $(ARGS); fi

demo: $(VENV)/.runs ## the dashboard on a simulated machine
	@exec $(BIN)/gputop --demo $(ARGS)

test: $(VENV)/.tests ## the tests
	$(BIN)/python -m pytest -n 2 $(ARGS)

coverage: $(VENV)/.tests ## the tests, and which lines of gputop they do not reach (.cache/coverage/index.html)
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered --cov-report=html:.cache/coverage $(ARGS)

lint: $(VENV)/.tests ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.tests ## put the sources into ruff's form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.tests ## cost and speed beside nvtop and nvitop, on the simulated driver
	$(BIN)/python benchmarks/bench.py $(ARGS)

screenshots: $(VENV)/.tests ## draw screenshots/ anew
	$(BIN)/python screenshots/make.py $(ARGS)

build: $(VENV)/.tests ## dist/: the wheel and the source archive
	rm -f dist/*.whl dist/*.tar.gz
	$(BIN)/python -m build --outdir dist .

pyz: $(VENV)/.tests ## dist/gputop.pyz: everything in one file, for machines without pip and network
	$(BIN)/python release/pyz.py

clean: ## remove what was made here
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build *.egg-info
	find gputop tests -name __pycache__ -type d -exec rm -rf {} +
