# make demo | pipeline-demo | test | console | interop | chaos | soak | nightly | lint | mutants | tla | experiments | proto | diagrams | reference | bench | clean. Everything is installed into .venv from pyproject.toml; nothing by hand.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: demo pipeline-demo test console interop chaos soak nightly mutants tla experiments lint proto proto-check diagrams reference bench clean

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALL := $(PIP) install --no-compile --editable
# pip compiles on one processor, and tests of packages too. What does not compile here is compiled, or fails, when it is imported.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests/' .venv/lib || :
EXTRA = $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"])')

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kraftlab needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.11" % sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@touch $@

.venv/installed: pyproject.toml | .venv/made
	@echo "installing kraftlab into .venv …" >&2
	@$(INSTALL) . >&2
	@$(COMPILE)
	@touch $@

# Spark comes as 450 MB of source, so its wheel is built, without compressing what is compressed, while all else is installed.
.venv/installed-dev: pyproject.toml | .venv/made
	@echo "installing kraftlab and what tests need into .venv …" >&2
	@$(MAKE) --no-print-directory -j 2 .venv/wheels .venv/installed-tests
	@$(INSTALL) '.[dev]' --find-links .venv/wheels >&2
	@$(COMPILE)
	@rm -rf .venv/wheels
	@touch .venv/installed .venv/installed-tools $@

.PHONY: .venv/wheels
.venv/wheels: | .venv/made
	@mkdir -p $@
	@$(BIN)/python -c 'import pyspark' 2>/dev/null || \
	  $(PIP) wheel --no-deps --wheel-dir $@ -C--build-option=--compression=stored $(call EXTRA,spark) >&2 || :

.PHONY: .venv/installed-tests
.venv/installed-tests: | .venv/made
	@$(INSTALL) '.[tests]' >&2

# What `make lint` needs: no Spark, no Arrow, no Kafka client.
.venv/installed-tools: pyproject.toml | .venv/made
	@echo "installing kraftlab and the lints into .venv …" >&2
	@$(INSTALL) '.[tools]' >&2
	@touch .venv/installed $@

.venv/installed-pipeline: .venv/installed
	@echo "installing Spark, Arrow and a Java for them …" >&2
	@$(INSTALL) '.[pipeline]' >&2
	@touch $@

.venv/installed-chaos: .venv/installed
	@echo "installing what histories and their pages need …" >&2
	@$(INSTALL) '.[chaos]' >&2
	@touch $@

.venv/installed-demo: .venv/installed
	@echo "installing a Kafka client …" >&2
	@$(INSTALL) '.[demo]' >&2
	@touch $@

demo: .venv/installed-demo
	@$(BIN)/kraftlab demo $(ARGS)

# Logs to tables, audits, a plan and a page, on Spark. Needs no Java.
pipeline-demo: .venv/installed-pipeline
	@$(BIN)/python -m kraftlab.demo.pipeline $(ARGS)

# Three workers, for two processors: clusters of processes in one, which often waits, everything else beside them (tests/conftest.py).
# `-n 0`: all in one process.
# Byte code is kept, also where the environment would rather not: hundreds of processes import the same modules.
test console interop nightly: export PYTHONDONTWRITEBYTECODE =
test: .venv/installed-dev
	$(BIN)/python -m pytest -n 3 $(ARGS)

# Every page of the console, and every action of a page, in Chromium against real clusters.
console: .venv/installed-dev
	$(BIN)/python -m pytest -n 0 -m 'console or not console' tests/console $(ARGS)

# Existing Kafka clients and tools on one cluster, the image of a node, and what Apache Kafka answered by its protocol. The summary names
# tests that were skipped, and the missing tool chain.
interop: .venv/installed-dev
	$(BIN)/python -m pytest -n 0 -m interop -rs tests/interop $(ARGS)
	$(BIN)/python -m pytest -n 0 tests/cases --door kafka $(ARGS)

# At length what `make test` does in small: every property test with fifty times its examples, thousands of seeds that
# no night has played before, every planted bug, and traces (Java 11 and Maven) of seeds that no night has played before.
NIGHT ?= $(shell expr $$(date +%s) / 86400)
nightly: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 -m hypothesis --rounds 50
	$(BIN)/python -m pytest -m nightly
	$(BIN)/python -m kraftlab.cli.main sim --seeds 5000 --start $$(($(NIGHT) * 5000))
	$(BIN)/python -m kraftlab.cli.main chaos test -w admin -n all --world simulated --brokers 5 --time 5 --seeds 600 --seed $$(($(NIGHT) * 600))
	$(MAKE) mutants
	$(BIN)/python -m kraftlab.cli.main trace simulate --seeds 200 --lines 1000 --start $$(($(NIGHT) * 200))

# Workloads on real processes under every fault that this machine can have, for an hour, and five minutes more by kafka-python.
chaos: .venv/installed-chaos
	$(BIN)/python -m kraftlab.cli.main chaos test-all --matrix nightly --time 20 --within 3600 $(ARGS)
	$(BIN)/python -m kraftlab.cli.main chaos test-all --matrix nightly --time 20 --within 300 --client kafka-python $(ARGS)

# Figures of published papers, in small: runs/experiments/index.html.
experiments: .venv/installed-chaos
	$(BIN)/kraftlab experiment run --all $(ARGS)

# Ten minutes of producing, moving, compacting, filling and failing disks and killing on real processes.
soak: .venv/installed
	$(BIN)/python -m bench soak $(ARGS)

# Needs Java 11 and Maven.
tla: .venv/installed-dev
	$(BIN)/python -m kraftlab.cli.main trace models
	$(BIN)/python -m kraftlab.cli.main trace simulate --seeds 200 --lines 300 $(ARGS)
	$(BIN)/python -m pytest -n 0 -m nightly tests/quorum/spec --ignore tests/quorum/spec/test_mutations.py

# Plants every known bug and sees that each is found.
mutants: .venv/installed-dev
	$(BIN)/python -m kraftlab.cli.main mutants $(ARGS)

lint: .venv/installed-tools proto-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/structure/plain_english.py

# The pinned compiler lives in an environment of its own: generated code refuses run-times older than its compiler.
proto: | .venv/made
	@test -x .venv/proto/bin/python || $(PYTHON) -m venv .venv/proto
	@.venv/proto/bin/python -m pip install --quiet --disable-pip-version-check $(call EXTRA,proto)
	.venv/proto/bin/python proto/generate.py
	.venv/proto/bin/python proto/kafka/generate.py

# Compares digests, and generates Kafka's messages, which needs no compiler.
proto-check: | .venv/made
	$(BIN)/python proto/generate.py --check
	$(BIN)/python proto/kafka/generate.py --check

# Draws docs/diagrams/*.d2; a test compares the pictures with their texts.
diagrams:
	@test -x .venv/diagrams/bin/python || $(PYTHON) -m venv .venv/diagrams
	@.venv/diagrams/bin/python -m pip install --quiet --disable-pip-version-check $(call EXTRA,diagrams)
	.venv/diagrams/bin/python docs/diagrams/render.py

# Writes docs/reference/*.md from the code.
reference: .venv/installed-dev
	$(BIN)/python docs/reference/generate.py

bench: .venv/installed-dev
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf .venv build *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
