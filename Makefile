# `make quickstart` and `make test` do all their own set-up from a clean clone.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BEAM_VENV ?= $(VENV)/beam
JAX_VENV ?= $(VENV)/jax
EXPORT_VENV ?= $(VENV)/exports
ACCELERATOR_VENV ?= $(VENV)/accelerators
TPU_VENV ?= $(VENV)/tpu
# For `make test-tpu-build`: the builds of TensorFlow for TPUs to run the tests on.
TPU_BUILDS ?= 2.19.1 2.20.0
TPU_TESTS := $(TPU_BUILDS:%=test-tpu-build-%)
OUTPUT_DIR ?= quickstart_output
# For `make benchmark`: a folder of data sets, and a checkout of google-research/bert.
DATA_DIR ?=
ORIGINAL_DIR ?=
# Fast tests only; `make test-slow` runs the others.
PYTEST_ARGS ?=

.PHONY: venv quickstart test test-slow test-beam test-jax test-exports test-tpu-build $(TPU_TESTS)
.PHONY: test-accelerators venv-accelerators
.PHONY: check format benchmark notebooks wheel test-wheel docs clean

venv: $(VENV)/.installed

# $(1): an environment with the packages of the first one behind its own.
define environment
	test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" \
	  > "$$($(1)/bin/python -c '$(PACKAGES)')/first.pth"
	$(1)/bin/python -m pip install --quiet --upgrade pip
endef
PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))

# The stamp is newer than the files that say what to install: a second `make` does nothing.
$(VENV)/.installed: setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,dev,benchmark]'
	touch $@

# The address in setup.cfg, and the outputs of one small run, into colab/*.ipynb.
notebooks: venv
	$(BIN)/python -m tests.addons.teaching.store_notebooks --run

quickstart: venv
	$(BIN)/python -m bert_tf.quickstart --output_dir=$(OUTPUT_DIR)

# What XLA compiles runs for milliseconds: to optimize it takes longer. The slow tests do.
test: venv
	XLA_FLAGS=--xla_backend_optimization_level=0 \
	  $(BIN)/python -m pytest -n auto --dist worksteal \
	  -m 'not slow' $(PYTEST_ARGS)

test-slow: venv
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

# Apache Beam cannot live beside the newest protobuf, so it has an environment of its own.
test-beam: $(BEAM_VENV)/.installed
	$(BEAM_VENV)/bin/python -m pytest tests/addons/corpora/beam_test.py $(PYTEST_ARGS)

$(BEAM_VENV)/.installed: $(VENV)/.installed constraints-beam.txt
	$(call environment,$(BEAM_VENV))
	awk -F== 'NR == FNR { other[$$1]; print; next } !($$1 in other)' \
	  constraints-beam.txt constraints.txt > $(BEAM_VENV)/constraints.txt
	$(BEAM_VENV)/bin/python -m pip install --quiet \
	  --constraint $(BEAM_VENV)/constraints.txt --editable '.[beam,test]'
	touch $@

# Keras' other back end has an environment of its own: `make test` needs no JAX. Most of
# the time goes into compiling: what two tests compile is compiled once, and quickly.
test-jax: $(JAX_VENV)/.installed
	KERAS_BACKEND=jax XLA_FLAGS=--xla_backend_optimization_level=0 \
	  JAX_COMPILATION_CACHE_DIR=$(abspath $(JAX_VENV))/compiled \
	  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2 \
	  $(JAX_VENV)/bin/python -m pytest -n auto --dist worksteal \
	  -m 'jax and not slow' $(PYTEST_ARGS)

$(JAX_VENV)/.installed: $(VENV)/.installed
	$(call environment,$(JAX_VENV))
	$(JAX_VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
	  --editable '.[jax,test]'
	touch $@

# The runtimes of exported models, which `make test` does without. Nothing that these
# packages require is installed: the package's own requirements are newer.
test-exports: $(EXPORT_VENV)/.installed
	$(EXPORT_VENV)/bin/python -m pytest -n auto --dist worksteal -m 'not slow' -rs \
	  tests/addons/serving/export_model_test.py tests/addons/serving/runtimes_test.py \
	  tests/addons/serving/onnx_graph_test.py tests/conversion/onnx_folder_test.py \
	  tests/conversion/litert_test.py tests/addons/serving/text_models_test.py \
	  tests/serving_page_test.py tests/addons/serving/reading_test.py tests/made_up_head \
	  tests/addons/corpora/trimming_test.py \
	  -k 'litert or onnx or run or text_models or serving' $(PYTEST_ARGS)

$(EXPORT_VENV)/.installed: $(VENV)/.installed constraints-exports.txt
	$(call environment,$(EXPORT_VENV))
	$(EXPORT_VENV)/bin/python -m pip install --quiet --no-deps \
	  --requirement constraints-exports.txt
	touch $@

# What the compilers of TPUs and GPUs make of each step on JAX, where there is neither.
# 5: nothing was collected, where the compilers cannot be had.
test-accelerators: venv-accelerators
	KERAS_BACKEND=jax $(ACCELERATOR_VENV)/bin/python -m pytest -n 2 --dist worksteal \
	  -rs tests/training/accelerators_test.py $(PYTEST_ARGS) || test $$? = 5

venv-accelerators: $(ACCELERATOR_VENV)/.installed

# Nothing that these packages require is installed: it is of use with a GPU alone. Where
# they cannot be had the tests are skipped, and the next `make` tries again.
$(ACCELERATOR_VENV)/.installed: $(VENV)/.installed constraints-accelerators.txt
	$(call environment,$(ACCELERATOR_VENV))
	$(ACCELERATOR_VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
	  --editable '.[jax,test]'
	! $(ACCELERATOR_VENV)/bin/python -m pip install --quiet --no-deps \
	  --requirement constraints-accelerators.txt || touch $@

# These builds run on the CPU where there is no TPU. They take the place of the package
# tensorflow, so each has an environment of its own, made as on a TPU: see docs/scaling.md.
test-tpu-build: $(TPU_TESTS)

# Without TPU_SKIP_MDS_QUERY they ask Google Cloud's metadata server which TPU there is,
# and wait minutes for an answer.
$(TPU_TESTS): test-tpu-build-%: $(TPU_VENV)-%/.installed
	TPU_SKIP_MDS_QUERY=1 $(TPU_VENV)-$*/bin/python -m pytest -n auto --dist worksteal \
	  -m 'not slow' $(PYTEST_ARGS)

$(TPU_VENV)-%/.installed: setup.cfg pyproject.toml requirements-tpu.txt constraints.txt \
		constraints-tpu-%.txt
	test -x $(TPU_VENV)-$*/bin/python || $(PYTHON) -m venv $(TPU_VENV)-$*
	awk -F== 'NR == FNR { other[$$1]; print; next } !($$1 in other)' \
	  constraints-tpu-$*.txt constraints.txt > $(TPU_VENV)-$*/constraints.txt
	$(TPU_VENV)-$*/bin/python -m pip install --quiet --upgrade pip
	$(TPU_VENV)-$*/bin/python -m pip install --quiet \
	  --constraint $(TPU_VENV)-$*/constraints.txt \
	  --requirement requirements-tpu.txt tensorflow-tpu==$* \
	  pytest pytest-xdist
	$(TPU_VENV)-$*/bin/python -m pip install --quiet --no-deps \
	  --constraint $(TPU_VENV)-$*/constraints.txt \
	  tensorflow-text keras-hub keras-nlp --editable .
	touch $@

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet -s tests/import_floors_test.py tests/reach_test.py

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# From the source distribution, so that what is missing there is missed here.
wheel: venv
	rm -rf dist
	$(BIN)/python -m build

# In a temporary folder; PYTHON says with which Python.
test-wheel: wheel
	.ci/test_wheel $(PYTHON) dist/*.whl $(PYTEST_ARGS)

docs: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/.docs-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

benchmark: venv
	for script in benchmarks/*.py; do \
	  $(BIN)/python $$script $(addprefix --data_dir=,$(DATA_DIR)) \
	    $(addprefix --original_dir=,$(ORIGINAL_DIR)) || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
