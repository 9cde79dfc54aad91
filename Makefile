# Everything works from a fresh clone with python3.11, make and git. `make help` lists the targets.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NEVER_IMPORTED := /site-packages/.*/tests?/|/kubernetes/aio/

.DEFAULT_GOAL := help
.PHONY: site screenshots help system setup smoke test beside test-from-nothing check docs lock mutants bench release clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 12

system:  ## what the tests need of the system (tests/system.toml), by one apt-get; without root it says what is missing
	$(PYTHON) tests/system.py setup test

setup: $(READY)  ## the virtual environment with everything: pyinfra, torch (CPU or CUDA as PyPI has it), megatron-core

$(READY): pyproject.toml
	$(PYTHON) tests/system.py setup
	umask 022 && $(PYTHON) -m venv $(VENV)   # the lab's ordinary users run it, whatever this shell's umask is
	umask 022 && $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e '.[test,train]'
	-umask 022 && $(BIN)/python -m compileall -qq -j 0 -x '$(NEVER_IMPORTED)' $(VENV)/lib   # pip has one core do all
	@touch $@

smoke: setup  ## the main job on this machine: examine, apply, train on the CPUs, judge
	PATH="$(CURDIR)/$(BIN):$$PATH" pyinfra inventories/local.py deploy/megatron.py -y

check: setup  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup  ## write what is generated in docs/: keys, findings, recipes, commands, schemas
	$(BIN)/python -m tests.docs

# pyinfra's test package patches its own process with gevent, which no other test can live with. What fails is tried once
# more by itself at the end (tests/twice.py). What is marked long (the table of faults among it) is in `make lab` alone,
# so that this takes 14 minutes on two idle cores, and more where a test is tried again.
test: system setup  ## all tests: unit, property, facts and operations, then the lab's (root, Debian family)
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target check beside
	$(BIN)/python -m tests.twice -q -n 6 --dist worksteal -m 'not long' tests/unit tests/property
	$(MAKE) --no-print-directory lab LAB_TESTS="tests/lab -m 'not long'"

# What one process does while mypy has the other core. Collecting compiles the tests once for all workers that follow,
# which say what fails in it.
beside: setup
	-$(BIN)/python -m pytest -q --collect-only tests/unit tests/property > /dev/null
	$(BIN)/python -m pytest -q tests/facts tests/operations
	$(BIN)/python -m pytest -q tests/browser

test-from-nothing:  ## smoke and test in Debian's smallest root file system with python3.11, make, git and a clone; before a release
	$(PYTHON) -m tests.lab.from_nothing

site: setup  ## build the documentation's site into build/site, strictly
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site

screenshots: setup  ## write the pictures of two runs into docs/images: RUNS='runs/PASSED runs/FAILED'
	$(BIN)/python -m tests.docs.images $(RUNS)

# Not the training's own packages: torch is another build for each kind of GPU.
lock: setup  ## write requirements.lock: the versions in the virtual environment, which the tests ran with, and their hashes
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[lock]'
	$(BIN)/pip freeze --exclude-editable --disable-pip-version-check > $(VENV)/versions.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra ledger --generate-hashes --constraint $(VENV)/versions.txt \
		--custom-compile-command 'make lock' --no-annotate --output-file requirements.lock pyproject.toml

mutants: setup  ## flip conditions one at a time and see whether the tests notice; MUTANTS='--area gates --all': there, each one
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mutants]'
	$(BIN)/python -m tests.mutants $(MUTANTS)

bench: setup  ## how often a baseline and a search for bad nodes err, by simulation; speed and memory against peers
	$(BIN)/python -m bench.baselines
	$(BIN)/python -m bench.isolation
	$(BIN)/python -m bench.trials
	$(BIN)/python -m bench.stragglers
	$(BIN)/python -m bench.commands
	$(BIN)/python -m bench.rack
	$(BIN)/python -m bench.link
	$(BIN)/python -m bench.altered
	$(BIN)/python bench/run.py

release: setup  ## build wheel, sdist, the agent's deb and an SBOM of this commit into dist/, twice, and compare: docs/developers/releasing.md
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[release]'
	$(BIN)/python contrib/release/build.py dist

clean:  ## remove the virtual environment and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

-include tests/lab/lab.mk
