# Every target sets itself up: a bare Debian or Ubuntu with Python 3.11, 3.12 or 3.13 is enough.
#
#   make demo      train a mission, judge it, export it, fly it through the ROS 2 nodes
#   make test      the tests (make slow: the proofs that take minutes, all examples of properties)
#   make lint      ruff, mypy, import-linter, codespell
#   make docs      the site, checked: every link, every page reachable; open site/index.html
#   make pictures  the pictures of README and docs, from outputs/demo (make demo)
#   make shape     the shape of the code against its limits: folders, modules, classes, functions, circles
#   make bench     measure against the targets; outputs/bench/*.json
#   make measure   measure all short benchmarks on a quiet machine (40 min) and keep them in benchmarks/results
#   make results   write docs/results.md and the README's table from benchmarks/results
#   make install   only the set-up: everything into .venv
#   make peers     only the libraries that tests and benchmarks compare with, into .venv/peers
#   make clean     remove .venv and caches (not outputs/)
#
# PYTHON=/path/to/python3.12 picks the interpreter. After the first set-up nothing needs a network.

# Bytecode is kept, whatever the environment says: else each of the hundreds of processes that tests start compiles all.
export PYTHONDONTWRITEBYTECODE :=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install peers demo test slow lint docs pictures shape bench measure results clean

BIN := .venv/bin
BRIDGE := ros2_ws/src/temporeal_bridge
PIP := $(BIN)/python -m pip --disable-pip-version-check
PROJECT := Makefile constraints.txt pyproject.toml setup.cfg $(wildcard $(BRIDGE)/setup.cfg $(BRIDGE)/setup.py)
# more workers than cores only wait for each other
WORKERS ?= $(shell n=$$(nproc); echo $$(( n < 4 ? n : 4 )))
# one thread of linear algebra per test process: two processes that each start a thread per core take twice as long
TEST := OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
  --no-loadscope-reorder

help:
	@sed -n 's/^#   //p' Makefile

# The environment: a Python that the pins are for (Cyclone DDS has wheels up to 3.13) and that can make one.
.venv/.python:
	@python="$(PYTHON)"; \
	for candidate in $$python python3.11 python3.12 python3.13 python3; do \
	  if command -v "$$candidate" >/dev/null && \
	     "$$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	    python="$$candidate"; break; \
	  elif [ -n "$(PYTHON)" ]; then \
	    echo "make: PYTHON=$(PYTHON) is not a Python 3.11, 3.12 or 3.13" >&2; exit 1; \
	  fi; python=; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "make: no Python 3.11, 3.12 or 3.13 found. Debian 12, Ubuntu 24.04: apt install python3 python3-venv;" \
	       "or give one: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "make: $$python cannot make virtual environments. Debian, Ubuntu: apt install python$$version-venv" >&2; \
	  exit 1; \
	fi; \
	echo "make: environment .venv with $$("$$python" --version) ($$(command -v "$$python"))"; \
	"$$python" -m venv --clear .venv; \
	touch $@

# What the demo needs. compat: else a folder named `sim` where you stand would hide the package.
.venv/.run: .venv/.python $(PROJECT)
	@echo "make: installing (once; some minutes and a network the first time)"
	@$(PIP) install --quiet -c constraints.txt "setuptools>=77"
	@$(PIP) install --quiet -c constraints.txt --no-build-isolation --config-settings editable_mode=compat \
	  -e '.[train,robot,spec,parquet]'
	@$(PIP) install --quiet -c constraints.txt --no-build-isolation --config-settings editable_mode=compat \
	  --no-deps -e $(BRIDGE)
	@touch $@

# What the tests and linters need besides.
.venv/.dev: .venv/.run
	@$(PIP) install --quiet -c constraints.txt --no-build-isolation --config-settings editable_mode=compat \
	  -e '.[train,robot,spec,parquet,sign,cameras,view,own-robot,adapters,data,robot-learning,px4,docs,dev]'
	@touch $@

# The libraries that are compared with, each in a folder of its own, because their dependencies clash with ours.
.venv/.peers: .venv/.run benchmarks/peers/install.py
	@$(BIN)/python -m temporeal_benchmarks.peers
	@touch $@

# Those that are large and only benchmarks need, too.
.venv/.all-peers: .venv/.peers
	@$(BIN)/python -m temporeal_benchmarks.peers all
	@touch $@

install: .venv/.dev

peers: .venv/.peers

demo: .venv/.run
	@$(BIN)/temporeal demo $(ARGS)

test: .venv/.dev .venv/.peers
	$(TEST) -m "not slow" $(ARGS)

slow: .venv/.dev
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile full --durations=10 $(ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

pictures: .venv/.dev
	@MPLBACKEND=Agg $(BIN)/python .ci/pictures.py

shape:
	@python3 .ci/shape.py $(ARGS)

bench: .venv/.run .venv/.all-peers
	@$(BIN)/temporeal bench --all $(ARGS)

# A missed target (status 1) is a result, and the next benchmark follows.
measure: .venv/.run .venv/.all-peers
	@$(BIN)/temporeal bench stl sim quadrotor train-quadrotor planar mujoco --keep || [ $$? = 1 ]
	@$(BIN)/temporeal bench deploy --priority realtime --core 1 --awake true --minutes 10 --keep || [ $$? = 1 ]
	@$(BIN)/temporeal bench train-waypoints --keep || [ $$? = 1 ]
	@$(BIN)/python -m temporeal_benchmarks.results_page

results: .venv/.run
	@$(BIN)/python -m temporeal_benchmarks.results_page

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist site *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
