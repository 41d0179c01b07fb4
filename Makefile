# `make demo` and `make test` do all of their own set-up into .venv; see the README.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEVELOPMENT := $(VENV)/.development
BENCH := $(VENV)/.bench
DOCS := $(VENV)/.docs
ENGINES := $(VENV)/.engines
TORCH := $(VENV)/torch
MARIAN := $(VENV)/marian
SPARK := $(VENV)/spark
FLINK := .cache/flink/.installed
KAFKA := .cache/kafka/.installed
EXPANSION := .cache/expansion/.installed
LINKS := .cache/links/tt

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo docs pictures check test test-site test-dataflow test-portable test-flink test-stream test-marian test-spark mutants bench bench-train bench-translate bench-stream bench-translate-variables flink kafka expansion lint types lock clean

demo: $(RUNTIME)
	$(BIN)/tt demo --folder demo

# A module's tests stay in one process, as its fixtures do; `tests/conftest.py` says how many there are.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadscope --no-loadscope-reorder

test: lint types
	$(PYTEST)

# Jobs on engines: Dataflow's client against stand-ins for its services and for object stores, Beam's
# portable job service, a Flink cluster of this machine, and streams through a broker of Kafka's protocol
# and through Apache Kafka itself. Without Java and Maven, what needs Flink or Apache Kafka is skipped.
test-flink: flink kafka
test-stream: kafka expansion
test-dataflow: expansion
test-dataflow test-portable test-flink test-stream: test-%: $(ENGINES)
	$(BIN)/python -m pytest tests/engines/$*

# Flink and Beam's job server for it, and Apache Kafka, where there are Java and Maven.
flink: $(RUNTIME)
	@if command -v java > /dev/null && command -v mvn > /dev/null; then $(MAKE) --no-print-directory $(FLINK); \
		else echo "no Java or no Maven here: the tests on Flink are skipped"; fi

kafka:
	@if command -v java > /dev/null && command -v mvn > /dev/null; then $(MAKE) --no-print-directory $(KAFKA); \
		else echo "no Java or no Maven here: the tests on Apache Kafka are skipped"; fi

expansion:
	@if command -v java > /dev/null && command -v mvn > /dev/null; then $(MAKE) --no-print-directory $(EXPANSION); \
		else echo "no Java or no Maven here: the tests of Beam's Kafka connector are skipped"; fi

$(FLINK): deploy/flink/install.sh deploy/flink/pom.xml deploy/flink/requirements.txt
	deploy/flink/install.sh
	touch $@

$(KAFKA): tests/support/kafka/install.sh tests/support/kafka/pom.xml
	tests/support/kafka/install.sh
	touch $@

$(EXPANSION): deploy/expansion/install.sh deploy/expansion/pom.xml
	deploy/expansion/install.sh
	touch $@

# For the work between: lint, types and the tests that take no seconds; tests/support/slow_tests.py says
# which do. Under 90 s on 2 cores that do nothing else, with mypy's cache of the time before.
check: lint types
	$(PYTEST) -m "not slow" -q

# Models of Marian's against Marian itself, whose wheel has 600 MB; it trains a small one first.
test-marian: $(DEVELOPMENT) $(MARIAN)/.installed
	$(BIN)/python -m pytest tests/engines/marian

# Translated tables, written and read by Spark. Without Java 17 or later, the tests are skipped.
test-spark: $(DEVELOPMENT) $(SPARK)/.installed
	$(BIN)/python -m pytest tests/engines/spark

# Changes the code in one place after the other, in copies, and fails if no test notices one of them.
mutants: $(DEVELOPMENT)
	$(BIN)/python tests/mutants/run.py

# Trains and translates a little on the GPUs of this machine, and compares with its CPU; it fails where
# TensorFlow finds no GPU. No GPU has run it yet.
test-gpu: $(DEVELOPMENT)
	TT_REQUIRE_GPU=1 $(BIN)/python -m pytest tests/model/engines/test_gpu_smoke.py -v

# The pictures of docs/architecture.md from the code, and those of docs/look.md from the model of `make
# demo`; needs Chromium.
pictures: demo
	mkdir -p docs/images
	$(BIN)/python tests/support/architecture_pictures.py docs/images
	$(BIN)/tt attention "The women bought red apples yesterday." --model demo/run --layer 3 \
		--output docs/images/attention.png --overwrite
	$(BIN)/tt report demo/run --output demo/report.html --overwrite
	$(BIN)/python tests/support/chromium.py demo/report.html docs/images/report.png

# Ratios to bare SentencePiece and to Hugging Face's datasets and tokenizers, about an hour; how the
# memory of translating grows; then those of training.
bench: $(BENCH)
	$(BIN)/python tests/bench/preprocess.py --peer
	$(BIN)/python tests/bench/preprocess.py --memory
	$(BIN)/python tests/bench/translate_memory.py
	$(MAKE) bench-train

# Ratios to a plain TensorFlow step and to PyTorch, and the input of training; a quarter of an hour.
bench-train: $(RUNTIME) $(TORCH)/.installed
	$(BIN)/python tests/bench/records_to_batches.py
	$(BIN)/python tests/bench/records_to_batches.py --memory
	$(BIN)/python tests/bench/train.py

# The decoder's ratio to CTranslate2, and the ratios of `tt translate-batch` to the decoder alone. Not
# part of `make bench`: it needs a trained model, and texts of its source language, as in
#     make bench-translate MODEL=run TEXT="test.en.gz train.en.gz" OPTIONS=--lowercase
# The decoder translates the first text. OPTIONS are those of tests/bench/translate.py.
bench-translate: bench-translate-variables $(DEVELOPMENT)
	$(BIN)/python tests/bench/decode.py $(MODEL) $(firstword $(TEXT))
	$(BIN)/python tests/bench/translate.py $(MODEL) $(TEXT) $(OPTIONS)

# The ratios of `tt translate-stream` to the decoder alone and to a loop written by hand, its latency,
# and what kills lose; with the same variables. OPTIONS are those of tests/bench/stream.py.
bench-stream: bench-translate-variables $(ENGINES) kafka
	$(BIN)/python tests/bench/stream.py $(MODEL) $(TEXT) $(OPTIONS)

bench-translate-variables:
	@test -n "$(MODEL)" || { echo "name a run folder or model folder with MODEL=..." >&2; exit 1; }
	@test -n "$(TEXT)" || { echo "name texts, a sentence a line, with TEXT=\"...\"" >&2; exit 1; }

lint: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# mypy cannot read the mapping of packages in pyproject.toml, so it finds them through links.
types: $(DEVELOPMENT) | $(LINKS)
	$(BIN)/mypy

# Generates the command pages from the options of the commands, and builds the site in .cache/site. Only
# the installation needs the network.
docs: $(DOCS) | $(LINKS)
	$(BIN)/python tests/support/reference_pages.py docs/reference/commands
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Opens the site in Chromium, to try its search, its dark mode and the width of a phone.
test-site: $(DEVELOPMENT) $(DOCS) | $(LINKS)
	$(BIN)/python -m pytest tests/test_site.py

$(LINKS):
	mkdir -p $@
	ln -s ../../../cli ../../../model ../../../pipelines $@

# The locks hold every package with its hashes, so pip need not look for dependencies; `tt` itself is
# installed from this folder.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "tt needs Python 3.11, 3.12 or 3.13; choose one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUNTIME): requirements/runtime.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the packages of requirements/runtime.lock into $(VENV): 3 GB, some minutes"
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/runtime.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

$(DEVELOPMENT): requirements/dev.lock $(RUNTIME)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/dev.lock
	touch $@

$(BENCH): requirements/bench.lock $(RUNTIME)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/bench.lock
	touch $@

$(DOCS): requirements/docs.lock $(RUNTIME)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/docs.lock
	touch $@

$(ENGINES): requirements/engines.lock $(DEVELOPMENT)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/engines.lock
	touch $@

# PyTorch is only compared with, and its versions of shared packages are its own.
$(TORCH)/.installed: | $(VENV)/bin/python
	$(BIN)/python -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet torch==2.13.0 numpy
	touch $@

# pymarian has wheels for Python 3.11 alone; PYTHON_MARIAN names one where `python3` is another.
PYTHON_MARIAN ?= $(PYTHON)
$(MARIAN)/.installed: requirements/marian.lock | $(VENV)/bin/python
	$(PYTHON_MARIAN) -m venv $(MARIAN)
	$(MARIAN)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/marian.lock
	touch $@

$(SPARK)/.installed: requirements/spark.lock | $(VENV)/bin/python
	$(BIN)/python -m venv $(SPARK)
	$(SPARK)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/spark.lock
	touch $@

# Needs `uv` on the PATH. Without --upgrade, versions that still fit are kept.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" pyproject.toml
lock:
	$(COMPILE) --output-file requirements/runtime.lock
	$(COMPILE) --extra gpu --constraint requirements/runtime.lock --output-file requirements/gpu.lock
	$(COMPILE) --group dev --constraint requirements/runtime.lock --output-file requirements/dev.lock
	$(COMPILE) --group bench --constraint requirements/runtime.lock --output-file requirements/bench.lock
	$(COMPILE) --group docs --constraint requirements/runtime.lock --constraint requirements/dev.lock \
		--output-file requirements/docs.lock
	$(COMPILE) --group engines --constraint requirements/runtime.lock --constraint requirements/dev.lock \
		--output-file requirements/engines.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --group pyproject.toml:marian \
		--output-file requirements/marian.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --group pyproject.toml:spark \
		--output-file requirements/spark.lock

clean:
	rm -rf $(VENV) .cache demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
