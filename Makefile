# `make demo` and `make test` install everything that they need into .venv; see the README.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEVELOPMENT := $(VENV)/.development
BENCH := $(VENV)/.bench
DOCS := $(VENV)/.docs
ENGINES := $(VENV)/.engines
TORCH := $(VENV)/torch
GPU := $(VENV)/gpu
RECORDING := $(VENV)/recording
HUGGINGFACE := $(VENV)/huggingface
HUGGINGFACE_OLD := $(VENV)/huggingface-old
SPARK := $(VENV)/spark
FLINK := .cache/flink/.installed
KAFKA := .cache/kafka/.installed
EXPANSION := .cache/expansion/.installed
LINKS := .cache/links/tt
# The commit that `make compare` compares with, unless COMMIT names another one.
COMMIT ?= cb84cf81
BEFORE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tt/before/$(shell git rev-parse --verify --quiet $(COMMIT)^{commit} 2> /dev/null)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Each module is compiled once, and not in each process of the tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: azurite demo docs pictures recording test-gpu check house messages test test-fast test-long test-release test-site before compare test-engines test-dataflow test-portable test-flink test-stream test-huggingface test-huggingface-old test-spark mutants bench bench-train bench-tables bench-texts bench-translate bench-stream bench-translate-variables flink kafka expansion lint types lock clean

demo: $(RUNTIME)
	$(BIN)/tt demo --folder demo

# Tests of one module share fixtures and therefore one process. `tests/conftest.py` sets the number
# of processes.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadscope --no-loadscope-reorder --durations 40 --durations-min 4

test: $(DEVELOPMENT)
	$(PYTEST) -m "not long and not release"

# The tests that do not take seconds, as listed in tests/support/slow_tests.py.
test-fast: $(DEVELOPMENT)
	$(PYTEST) -m "not slow" -q

# Kills programs at many moments and compares what they finish with undisturbed runs, and runs every
# command of the documentation.
test-long: $(DEVELOPMENT)
	$(PYTEST) -m long

# Further long tests: random histories, several machines, messy corpora, the benchmarks.
test-release: $(DEVELOPMENT)
	$(PYTEST) -m release

# Engine tests: Dataflow's client against stand-ins for its services and for object stores, Beam's
# portable job service, a local Flink cluster, streams through a broker that speaks Kafka's protocol
# and through Apache Kafka itself, Spark, and Transformers. Without Java and Maven, tests on Flink and
# Apache Kafka are skipped. PICK contains more arguments of pytest: continuous integration runs only
# one job per engine, with PICK="-m headline".
test-engines: test-dataflow test-portable test-flink test-stream test-spark test-huggingface-old

test-flink: flink kafka
test-stream: kafka $(if $(PICK),,expansion)
test-dataflow: $(if $(PICK),,expansion) azurite
# Most of these tests wait for brokers and services, so a third process makes them faster.
test-dataflow test-stream: PROCESSES := -n 3
test-dataflow test-portable test-flink test-stream: test-%: $(ENGINES)
	$(BIN)/python -m pytest tests/engines/$* $(if $(PICK),$(PICK),$(PROCESSES))

# A stand-in for Azure Blob Storage.
azurite: $(RUNTIME)
	@if command -v npm > /dev/null; then $(MAKE) --no-print-directory .cache/azurite/.installed; \
		else echo "npm is missing, so the tests of Azure are skipped"; fi

.cache/azurite/.installed:
	npm install --silent --no-fund --no-audit --prefix .cache/azurite azurite@3.35.0
	touch $@

# Flink, Beam's job server for Flink, and Apache Kafka are installed only if Java and Maven exist.
flink: $(RUNTIME)
	@if command -v java > /dev/null && command -v mvn > /dev/null; then $(MAKE) --no-print-directory $(FLINK); \
		else echo "Java or Maven is missing, so the tests on Flink are skipped"; fi

kafka:
	@if command -v java > /dev/null && command -v mvn > /dev/null; then $(MAKE) --no-print-directory $(KAFKA); \
		else echo "Java or Maven is missing, so the tests on Apache Kafka are skipped"; fi

expansion:
	@if command -v java > /dev/null && command -v mvn > /dev/null; then $(MAKE) --no-print-directory $(EXPANSION); \
		else echo "Java or Maven is missing, so the tests of Beam's Kafka connector are skipped"; fi

$(FLINK): deploy/flink/install.sh deploy/flink/pom.xml deploy/flink/requirements.txt
	deploy/flink/install.sh
	touch $@

$(KAFKA): tests/support/kafka/install.sh tests/support/kafka/pom.xml
	tests/support/kafka/install.sh
	touch $@

$(EXPANSION): deploy/expansion/install.sh deploy/expansion/pom.xml
	deploy/expansion/install.sh
	touch $@

# Fast checks during development: lint, types, and the rules for code and documents. They take less
# than 60 s on 2 idle cores, if mypy has a cache.
check: lint types house

house: $(DEVELOPMENT)
	$(BIN)/python -m pytest -q tests/test_house.py tests/test_documents.py

# Lists the messages of the product in tests/messages.txt, so that a commit shows its new messages.
messages: $(RUNTIME)
	$(BIN)/python tests/support/product_messages.py

# Creates models with Hugging Face's Transformers, and compares their translations with ours. PyTorch's
# wheels for Linux need CUDA's libraries even on a CPU, so the environment has 4.5 GB. The second
# target also uses the last version of 2022, which needs another 4.5 GB and Python 3.11.
test-huggingface: $(DEVELOPMENT) $(HUGGINGFACE)/.installed
test-huggingface-old: $(DEVELOPMENT) $(HUGGINGFACE)/.installed $(HUGGINGFACE_OLD)/.installed
test-huggingface test-huggingface-old:
	$(BIN)/python -m pytest tests/engines/huggingface $(PICK)

# Spark reads and writes translated tables. Without Java 17 or later, the tests are skipped.
test-spark: $(DEVELOPMENT) $(SPARK)/.installed
	$(BIN)/python -m pytest tests/engines/spark $(PICK)

# `make before` installs the program of another commit outside the tree, with the versions of that
# commit's lock. `make compare` runs this program and the checkout on the same inputs, and prints each
# difference that tests/compare/explained.toml does not list. CASES names single cases.
before: $(BEFORE)/.installed

$(BEFORE)/.installed:
	tests/compare/install.sh $(COMMIT) $(BEFORE) $(PYTHON)

compare: $(DEVELOPMENT) $(BEFORE)/.installed
	PYTHONPATH=tests $(BIN)/python -m compare $(BEFORE) $(CASES)

# Changes copies of the code in one place each, and fails if the tests do not detect a change.
mutants: $(DEVELOPMENT)
	$(BIN)/python tests/mutants/run.py

# Trains and translates on the GPUs of this machine, compares scores and losses with the CPU, and prints
# one table. Needs NVIDIA's driver, and fails if TensorFlow finds no GPU. deploy/gpu/test.json runs
# this target on Google Cloud. The target has not been run on a GPU yet.
test-gpu: $(GPU)/.installed
	TT_REQUIRE_GPU=1 $(GPU)/bin/python -m pytest -s --tb=line \
		tests/model/engines/test_gpu_smoke.py::test_gpus_compute_like_the_cpu

# Draws the pictures in docs/images: diagrams from the code, and a report and an attention map from the
# model of `make demo`. Needs Chromium. The pictures must not show this folder's path.
pictures: demo
	mkdir -p docs/images
	$(BIN)/python tests/support/architecture_pictures.py docs/images
	$(BIN)/tt attention "The women bought red apples yesterday." --model demo/run --layer 3 \
		--output docs/images/attention.png --overwrite
	$(BIN)/tt report demo/run --output demo/report.html --overwrite
	sed -i 's#$(CURDIR)#/home/you/tt#g' demo/report.html
	$(BIN)/python tests/support/chromium.py demo/report.html docs/images/report.png

# Records `make demo` in a terminal as an animated picture, also without this folder's path.
recording: $(RUNTIME) $(RECORDING)/.installed
	rm -rf demo
	script -qec "stty cols 112 rows 40; $(RECORDING)/bin/termtosvg docs/images/demo.svg -g 112x40 \
		-m 400 -M 1200 -D 4000 -t gjm8_play -c 'make --no-print-directory demo'" /dev/null
	sed -i 's#$(CURDIR)#/home/you/tt#g' docs/images/demo.svg

# Measures preprocessing as a ratio to bare SentencePiece and to Hugging Face's datasets and
# tokenizers, then the memory growth of translation, then training. Takes about an hour.
bench: $(BENCH)
	$(BIN)/python tests/bench/preprocess.py --peer
	$(BIN)/python tests/bench/preprocess.py --memory
	$(BIN)/python tests/bench/translate_memory.py
	$(MAKE) bench-train

# Measures training as a ratio to PyTorch, in 10 minutes. With OTHER, which is the Python of an
# environment with another version of `tt`, also as a ratio to that version.
bench-train: $(RUNTIME) $(TORCH)/.installed
	$(BIN)/python tests/bench/train.py $(if $(OTHER),--before $(OTHER))

# Measures how fast both jobs read and write tables, as a ratio to the program of COMMIT, in 6 minutes.
# OPTIONS are flags of tests/bench/tables.py, such as --pairs 20000.
bench-tables: $(RUNTIME) $(BEFORE)/.installed
	$(BIN)/python tests/bench/tables.py --before $(BEFORE)/bin/python $(OPTIONS)

# Measures the CPU time of a translation beside the model for each kind of text, in a minute. With OTHER,
# which is the Python of an environment with another version of `tt`, also that of this version.
bench-texts: $(RUNTIME)
	$(BIN)/python tests/bench/texts.py $(if $(OTHER),--before $(OTHER)) $(OPTIONS)

# Measures the decoder as a ratio to CTranslate2, and `tt translate-batch` as a ratio to the decoder.
# Not part of `make bench`, because it needs a trained model and texts in its source language:
#     make bench-translate MODEL=run TEXT="test.en.gz train.en.gz" OPTIONS=--lowercase
# The decoder translates only the first text. OPTIONS are flags of tests/bench/translate.py.
bench-translate: bench-translate-variables $(DEVELOPMENT)
	$(BIN)/python tests/bench/decode.py $(MODEL) $(firstword $(TEXT))
	$(BIN)/python tests/bench/translate.py $(MODEL) $(TEXT) $(OPTIONS)

# Measures the speed of `tt translate-stream` as a ratio to the decoder and to a hand-written loop, its
# latency, and the messages that are lost if a process is killed. Takes the same variables. OPTIONS
# are flags of tests/bench/stream.py.
bench-stream: bench-translate-variables $(ENGINES) kafka
	$(BIN)/python tests/bench/stream.py $(MODEL) $(TEXT) $(OPTIONS)

bench-translate-variables:
	@test -n "$(MODEL)" || { echo "MODEL is missing. Set it to a run folder or model folder: MODEL=..." >&2; exit 1; }
	@test -n "$(TEXT)" || { echo "TEXT is missing. Set it to text files with one sentence per line: TEXT=\"...\"" >&2; exit 1; }

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
	$(BIN)/python tests/support/reference_pages.py docs/reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Opens the site in Chromium, to test its search, its dark mode and its layout on a phone.
test-site: $(DEVELOPMENT) $(DOCS) | $(LINKS)
	$(BIN)/python -m pytest tests/test_site.py

$(LINKS):
	mkdir -p $@
	ln -s ../../../cli ../../../model ../../../pipelines $@

# The locks contain every package with its hashes, so pip does not resolve dependencies. `tt` itself
# is installed from this folder.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "tt needs Python 3.11, 3.12 or 3.13. Choose one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUNTIME): requirements/runtime.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the packages of requirements/runtime.lock into $(VENV): 3 GB, takes minutes"
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

$(RECORDING)/.installed: | $(VENV)/bin/python
	$(BIN)/python -m venv $(RECORDING)
	$(RECORDING)/bin/python -m pip install --quiet termtosvg==1.1.0 'setuptools<81'
	touch $@

# PyTorch has its own environment, because it needs other versions of packages. Only benchmarks use it.
$(TORCH)/.installed: | $(VENV)/bin/python
	$(BIN)/python -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet torch==2.13.0 numpy
	touch $@

# TensorFlow with CUDA's libraries has its own environment: 8 GB, which a CPU does not need.
$(GPU)/.installed: requirements/gpu.lock requirements/dev.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the packages of requirements/gpu.lock into $(GPU): 8 GB, takes minutes"
	$(BIN)/python -m venv $(GPU)
	$(GPU)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/gpu.lock
	$(GPU)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/dev.lock
	$(GPU)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

# The old versions have wheels only up to Python 3.11. If `python3` is newer, set PYTHON_HUGGINGFACE_OLD.
PYTHON_HUGGINGFACE_OLD ?= $(PYTHON)
$(HUGGINGFACE_OLD)/.installed: requirements/huggingface-old.lock | $(VENV)/bin/python
	$(PYTHON_HUGGINGFACE_OLD) -m venv $(HUGGINGFACE_OLD)
	$(HUGGINGFACE_OLD)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/huggingface-old.lock
	touch $@

$(HUGGINGFACE)/.installed: requirements/huggingface.lock | $(VENV)/bin/python
	$(BIN)/python -m venv $(HUGGINGFACE)
	$(HUGGINGFACE)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/huggingface.lock
	touch $@

$(SPARK)/.installed: requirements/spark.lock | $(VENV)/bin/python
	$(BIN)/python -m venv $(SPARK)
	$(SPARK)/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/spark.lock
	touch $@

# Needs `uv` on the PATH. Without --upgrade, uv keeps the locked versions that still fit.
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
		--custom-compile-command "make lock" --group pyproject.toml:spark \
		--output-file requirements/spark.lock
	for name in huggingface huggingface-old; do \
		uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
			--custom-compile-command "make lock" --no-emit-package triton --group pyproject.toml:$$name \
			--output-file requirements/$$name.lock || exit 1; \
	done

clean:
	rm -rf $(VENV) .cache demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
