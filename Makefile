# Everything starts here: each target sets up what it needs on a fresh Debian or Ubuntu machine.
#   make build   peakline in .venv        make demo   estimate an 8B model's training, without a GPU
#   make test    every test               make bench  the benchmarks
#   make lint    formatters and linters   make format
#   make docs    the documentation site   make wheel  an sdist and a wheel, in dist/
#   make sanitize  the extension module under AddressSanitizer
#   make fuzz    every fuzzer, a minute each    make soak  20,000 tracked training steps
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:
# make's own rules would compile vgpu/values.cc into the folder vgpu/values.
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
# The torch to build against when .venv has none yet. Pinned: an open range pulls in gigabytes.
TORCH ?= torch==2.13.0
# It says which kernels convolutions take, and needs no GPU for that; not its dependencies: cuBLAS is never used.
CUDNN ?= nvidia-cudnn-cu13==9.19.0.56
# It imports without a GPU, and lets torch.compile compile for a virtual one; the version goes with torch.
TRITON ?= triton==$$($(VENV)/bin/python python/peakline/_virtual_cuda/_compiled/_versions.py)
# What the tests of integrations run with, as pyproject.toml has it; torch is named beside it, so that it stays as it is.
# transformers and wandb are large: their tests are skipped without them.
INTEGRATIONS ?= accelerate==1.15.0 lightning==2.6.6 tensorboard==2.21.0 prometheus-client==0.26.0 \
                opentelemetry-sdk==1.45.2 ipython==9.18.1
DOCS ?= "sphinx>=8" "myst-parser>=4" "furo>=2025.7" "griffe>=1.7"
INTEGRATED := accelerate, lightning, tensorboard, prometheus_client, opentelemetry.sdk, IPython
JOBS ?= $(shell nproc)
# Of the processor, for each fuzzer.
FUZZ_MINUTES ?= 1
SOAK_STEPS ?= 20000
VENV := .venv
SETUP := build/setup
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)

APT_BUILD := g++ cmake ninja-build ccache libzstd-dev libfmt-dev nlohmann-json3-dev libcli11-dev \
             libtomlplusplus-dev libsqlite3-dev libgtest-dev libbenchmark-dev
APT_LINT := clang-format clang-tidy

$(SETUP)/apt: Makefile
	@mkdir -p $(SETUP)
	tools/apt_install.sh "$(SUDO)" $(APT_BUILD)
	@touch $@

$(SETUP)/apt-lint: Makefile
	@mkdir -p $(SETUP)
	tools/apt_install.sh "$(SUDO)" $(APT_LINT)
	@touch $@

$(SETUP)/venv: pyproject.toml Makefile
	@mkdir -p $(SETUP)
	[ -x $(VENV)/bin/python ] || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -c "import torch" 2>/dev/null || $(VENV)/bin/pip install -q "$(TORCH)"
	$(VENV)/bin/pip install -q "scikit-build-core>=0.10" "numpy>=1.26" "highspy>=1.7" "pytest>=8" "pytest-xdist>=3.5" "hypothesis>=6" "ruff>=0.6" "mypy>=1.11"
	$(VENV)/bin/python -c "import nvidia.cudnn" 2>/dev/null || $(VENV)/bin/pip install -q --no-deps "$(CUDNN)" || \
	  echo "No cuDNN: peakline estimates convolutions by rules of its own."
	$(VENV)/bin/python -c "import triton" 2>/dev/null || $(VENV)/bin/pip install -q --no-deps "$(TRITON)" || \
	  echo "No Triton: compiled regions are estimated as running eagerly."
	$(VENV)/bin/python -c "import perfetto, pyarrow" 2>/dev/null || $(VENV)/bin/pip install -q "perfetto>=0.59" "pyarrow>=15" || \
	  echo "No perfetto or pyarrow: the tests that read exports with them are skipped."
	@touch $@

# Only tests need the libraries that peakline has integrations for.
$(SETUP)/integrations: $(SETUP)/venv
	$(VENV)/bin/python -c "import $(INTEGRATED)" 2>/dev/null || $(VENV)/bin/pip install -q $(INTEGRATIONS) \
	  "torch==$$($(VENV)/bin/python -c 'import torch; print(torch.__version__)')" || \
	  echo "No $(INTEGRATED): the tests of those integrations are skipped."
	@touch $@

# Installed anew when a source or a folder of them is newer, or torch is another one.
BUILT := $(VENV)/.peakline-built
# Not the folder `core` by its bare name: that is a target of this file, and always out of date.
BUILT_FROM := $(filter-out core,$(shell find core cli planner capture recompute vgpu python viewer/src viewer/dist cmake -not -path '*__pycache__*')) \
              CMakeLists.txt pyproject.toml tools/list_cuda_ops.py $(wildcard $(VENV)/lib/python3*/site-packages/torch/version.py)

.PHONY: build
build: $(BUILT)
$(BUILT): $(SETUP)/apt $(SETUP)/venv $(BUILT_FROM)
	@touch $@.begun  # what changes while this builds is newer than the stamp
	$(VENV)/bin/pip install -q --no-build-isolation --no-deps --force-reinstall .
	@mv $@.begun $@

.PHONY: core
core: $(SETUP)/apt
	cmake --preset dev > /dev/null
	cmake --build --preset dev -j $(JOBS)

.PHONY: demo
demo: build
	$(VENV)/bin/peakline estimate examples/llama.py -o build/demo.peak -- --size 8b --checkpoint
	$(VENV)/bin/peakline report build/demo.peak -o build/demo.html
	@echo "The report, for a browser: file://$(abspath build/demo.html)"

# Every C++ test runs under sanitizers; the program as installed then runs all golden and bad-file cases.
.PHONY: test test-core test-asan test-tsan test-cli test-viewer test-python test-package test-cpp test-full-size
test: lint-layers docs test-asan test-tsan test-cli test-viewer test-package test-python

# The quick loop of core and cli, without sanitizers.
test-core: core
	ctest --preset dev -j $(JOBS)

test-asan: $(SETUP)/apt
	cmake --preset asan > /dev/null
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(JOBS)

# What several threads touch: the recorder and its queue.
test-tsan: $(SETUP)/apt
	cmake --preset tsan > /dev/null
	cmake --build --preset tsan -j $(JOBS) --target capture_tests
	build/tsan/tests/capture_tests --gtest_brief=1

MAKE_RECORDING := build/asan/tests/make_recording

test-cli: build test-asan
	$(PYTHON) tests/golden/run.py --cli $(VENV)/bin/peakline --maker $(MAKE_RECORDING)
	$(PYTHON) tests/golden/bad_files.py --cli $(VENV)/bin/peakline --maker $(MAKE_RECORDING)

# The build that `make build` installed from: the last, if there are several.
WHEEL_BUILD = $(patsubst %/.ninja_log,%,$(shell ls -t build/python-*/.ninja_log | head -n 1))

# Core as other C++ programs meet it: installed from the wheel's build, found, built against and run.

test-package: build test-asan
	cmake --build $(WHEEL_BUILD) -j $(JOBS) --target peakline_package
	$(PYTHON) tests/package/run.py --build $(WHEEL_BUILD) --maker $(MAKE_RECORDING)
	$(PYTHON) tests/golden/alone.py --cli $(VENV)/bin/peakline --maker $(MAKE_RECORDING)

# peakline::torch, installed from the wheel's build, and the programs that tests/python/test_libtorch.py runs: a
# project that finds it there, as a stranger's would.
CPP := build/cpp
.PHONY: cpp
cpp: build
	cmake --build $(WHEEL_BUILD) -j $(JOBS) --target peakline_package peakline_torch_package
	cmake --install $(WHEEL_BUILD) --prefix $(CPP)/prefix --component cpp > /dev/null
	cmake --install $(WHEEL_BUILD) --prefix $(CPP)/prefix --component cpp_torch > /dev/null
	cmake -S tests/libtorch -B $(CPP)/programs -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
	  -DCMAKE_PREFIX_PATH=$(abspath $(CPP)/prefix) -DPython_EXECUTABLE=$(abspath $(VENV)/bin/python) > /dev/null
	cmake --build $(CPP)/programs -j $(JOBS)

test-cpp: cpp
	$(VENV)/bin/python -m pytest tests/python/test_libtorch.py

test-viewer: build test-asan
	tools/viewer_test.sh "$(SUDO)" $(VENV)/bin/peakline $(MAKE_RECORDING)

# A file's tests stay in one process: they share what the file sets up.
test-python: build cpp $(SETUP)/integrations
	$(VENV)/bin/python -m pytest tests/python -n $(JOBS) --dist loadfile

# Jobs of 16,384 ranks, every kind of rank: minutes, so not in `make test`.
test-full-size: build
	$(VENV)/bin/python -m pytest tests/python -m full_size

# PyTorch's own list of operators on the virtual GPU: minutes, so a part of it is in `make test` (docs/ops.md).
.PHONY: opinfo
opinfo: build
	$(VENV)/bin/python tools/opinfo_table.py --jobs $(JOBS)

# The extension module, with everything of peakline's in it, under AddressSanitizer: torch itself is not instrumented.
.PHONY: sanitize
sanitize: test-asan test-tsan build
	JOBS=$(JOBS) tools/sanitize_extension.sh

# The bundle in viewer/dist is what builds without npm embed; it follows viewer/src.
.PHONY: viewer
viewer:
	cd viewer && npm ci --no-audit --no-fund --ignore-scripts && npm run check && npm run build

.PHONY: bench
bench: build
	cmake --preset release > /dev/null
	cmake --build --preset release -j $(JOBS) --target benchmarks
	for b in build/release/benchmarks/*_bench; do $$b || exit 1; done

.PHONY: fuzz
fuzz: $(SETUP)/apt
	tools/apt_install.sh "$(SUDO)" clang
	cmake --preset fuzz > /dev/null
	cmake --build --preset fuzz -j $(JOBS)
	$(PYTHON) tools/run_fuzzers.py --minutes $(FUZZ_MINUTES)

# Twice: the whole recording, and one that must not grow.
.PHONY: soak
soak: build
	$(VENV)/bin/python benchmarks/soak.py --steps $(SOAK_STEPS)
	$(VENV)/bin/python benchmarks/soak.py --steps $(SOAK_STEPS) --max-size 2MiB

CXX_FILES = $(shell git ls-files '*.cc' '*.h')

.PHONY: lint lint-changed lint-style lint-layers format
# clang-tidy reads what includes torch for the better part of an hour; lint-changed reads what changed.
lint: lint-style
	JOBS=$(JOBS) tools/tidy.sh

lint-changed: lint-style
	JOBS=$(JOBS) tools/tidy.sh --changed

lint-style: lint-layers $(SETUP)/apt $(SETUP)/apt-lint $(SETUP)/venv
	clang-format --dry-run -Werror $(CXX_FILES)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy python/peakline python/peakline_pytest python/peakline_lightning tools
	$(VENV)/bin/mypy --no-warn-return-any --no-warn-unused-ignores examples

lint-layers:
	$(PYTHON) tools/check_layers.py
	$(PYTHON) tools/check_tests_listed.py
	$(PYTHON) tools/check_event_kinds.py
	$(PYTHON) tools/check_docs.py
	$(PYTHON) tools/checks_test.py

format: $(SETUP)/apt-lint $(SETUP)/venv
	clang-format -i $(CXX_FILES)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# The site of docs/: strict, and with nothing in it that needs a network.
$(SETUP)/docs: $(SETUP)/venv
	$(VENV)/bin/python -c "import sphinx, myst_parser, furo, griffe" 2>/dev/null || $(VENV)/bin/pip install -q $(DOCS)
	@touch $@

.PHONY: docs
docs: $(SETUP)/docs
	$(VENV)/bin/python -m sphinx -q -W --keep-going -j $(JOBS) -b html -d build/docs/cache docs build/docs/html
	$(PYTHON) tools/docs/check_offline.py build/docs/html
	@echo "The documentation, for a browser: file://$(abspath build/docs/html/index.html)"

# An sdist and a wheel with one extension for each minor of torch that is named.
TORCH_MINORS ?= 2.11 2.12 2.13 2.14 2.15
$(SETUP)/wheel: $(SETUP)/venv
	$(VENV)/bin/pip install -q "auditwheel>=6" "build>=1.2" "wheel>=0.45"
	@touch $@

.PHONY: wheel test-wheel
wheel: $(SETUP)/apt $(SETUP)/wheel
	PYTHON=$(VENV)/bin/python JOBS=$(JOBS) tools/wheel/build.sh $(TORCH_MINORS)

# The wheel of dist/ in an environment of its own, beside each torch of TORCHS: imports, the tour, and what is left.
TORCHS ?= $(TORCH)
test-wheel:
	for torch in $(TORCHS); do $(PYTHON) tools/wheel/try_wheel.py dist/*.whl "$$torch" || exit 1; done

# The tests beside another torch, say `make test-torch TORCH=2.12.0`, with a wheel; TESTS names some of them.
TESTS ?= tests/python
.PHONY: test-torch
test-torch: $(SETUP)/apt $(SETUP)/wheel
	PYTHON=$(VENV)/bin/python JOBS=$(JOBS) tools/wheel/test_torch.sh $(patsubst torch==%,%,$(TORCH)) $(TESTS)

.PHONY: clean
clean:
	rm -rf build
