# Two commands are enough: `make demo` and `make test`. Both set up .venv on their own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Real data for tests and results, where it lies beside the checkout.
ifneq ($(wildcard ../shared/data),)
export POLYSHOT_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test coverage fuzz golden format docs bench bench-estimator results results-page release-check clean

demo: $(VENV)/.runtime
	$(BIN)/polyshot demo

test: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

coverage: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --cov=polyshot --cov-report=term

fuzz: $(VENV)/.dev
	POLYSHOT_FUZZ=10000 OMP_NUM_THREADS=1 $(BIN)/pytest tests/fuzz

golden: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.golden.make

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release-check: $(BIN)/python
	rm -rf dist build/empty
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[cli,text]"
	cd build && empty/bin/polyshot --version && empty/bin/polyshot methods

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.gp
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.evaluation

bench-estimator: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_pool
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.estimator_active

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
