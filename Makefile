# Every target works on a fresh machine with Python 3.11: each sets up what it needs first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
# A worker a core, for most tests wait for processes of their own. What shares a lab or a control plane stays on one worker.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile

.PHONY: setup demo test slow kubernetes e2e ui lint bench docs clean

setup: $(STAMP)

# The dev group holds what tests and checks need; helm and kubectl go into the user's cache.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed: set PYTHON to its path"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	$(BIN)/python -m resources.tools
	@touch $@

demo: setup
	$(BIN)/python -m modelplane_dagster reconcile --timeout 10m

test: setup
	$(PYTEST) tests

# Minutes rather than seconds: every kill point, every fault, the schedule and the sensor under `dagster dev`.
slow: setup
	$(PYTEST) -m slow tests

# The control plane's binaries: KUBE_ASSETS, the cache, or seven minutes of `go build`.
kubernetes: setup
	$(BIN)/python -m resources.lab.plane.assets

# On a real API server and scheduler. Where they can't be had, this says so, and every test skips with that reason.
e2e: setup
	-$(BIN)/python -m resources.lab.plane.assets
	$(PYTEST) -m kubernetes tests -rs --durations 15

ui: setup
	MODELPLANE_WEBSERVER=http://127.0.0.1:3000 DAGSTER_HOME=$$($(BIN)/python -m resources.settings) \
		$(BIN)/dagster dev -w workspace.yaml -p 3000

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m benchmarks

docs: setup
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) build *.egg-info
