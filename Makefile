# Two commands are enough: `make demo` and `make test`. Both set up .venv on their own.
PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
EMPTY := build/empty/$(SCRIPTS)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Real data for tests and results, where it lies beside the checkout.
ifneq ($(wildcard ../shared/data),)
export POLYSHOT_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test test-lowest coverage fuzz audit golden format docs bench bench-estimator results results-page release-check clean

demo: $(VENV)/.runtime
	$(BIN)/polyshot demo

test: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

# Without the checks of types while the tests run.
UNCHECKED := addopts=-q -p no:anyio -p no:schemathesis

# The lowest versions that pyproject.toml allows, in an environment of their own. The lowest jaxtyping cannot check the
# types of what numba compiles. Left out: the test of a benchmark, which needs a newer scikit-learn.
LOWEST := build/lowest
LOWEST_PIP := $(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt
LOWEST_TOOLS := beartype gpytorch httpx2 hypothesis imagecorruptions-imaug onnxruntime pandas pyarrow \
	pytest pytest-xdist torchmetrics
NOT_LOWEST := estimator/test_estimator_benchmark.py

test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST_PIP) -e '.[all,text,images,onnx]' $(LOWEST_TOOLS)
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -o "$(UNCHECKED)" -n 2 --dist worksteal $(NOT_LOWEST:%=--ignore=tests/%)

coverage: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --cov=polyshot --cov-report=term

# The checks of types would take two thirds of the time; the examples of `make test` have them. Files are in memory.
fuzz: $(VENV)/.dev
	$(if $(wildcard /dev/shm),TMPDIR=/dev/shm) POLYSHOT_FUZZ=10000 OMP_NUM_THREADS=1 $(BIN)/pytest -o "$(UNCHECKED)" tests/fuzz

audit: $(VENV)/.runtime
	$(PIP) -e '.[audit]'
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

golden: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden.make

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release-check: $(BIN)/python
	rm -rf dist build/empty
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/empty
	$(EMPTY)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(ls dist/polyshot-*.whl)[text,images,cli,figures]"
	$(EMPTY)/python -P tests/readme_doors.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.gp
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.evaluation

# Most parts add to their committed results and can be interrupted; together they take hours: docs/estimator.md
bench-estimator: $(VENV)/.dev
	$(PIP) -e '.[bench]'
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_costs
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_averages
	$(BIN)/python -m benchmarks.estimator_threads
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_conformal
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_suspects
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_pool
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_active
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator --minutes 60

results: $(VENV)/.runtime
	$(BIN)/python -m paper.run

results-page: $(VENV)/.runtime
	$(BIN)/python -m paper.page

clean:
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) -e '.[dev]'
	@touch $@
