# Every target makes .venv when it is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO_READY := .venv/.demo-ready
DOCS_READY := .venv/.docs-ready
LABEL_STUDIO ?= label-studio==1.23.2

.PHONY: demo test lint bench bench-all docs integration torture test-spark wheel test-wheel test-no-torch test-oldest test-newest clean

demo: $(DEMO_READY)
	$(BIN)/crowdshot demo

test: $(READY)
	$(BIN)/pytest -q -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What users wait for, as a table of now and aim; three minutes on an idle machine.
bench: $(READY)
	$(BIN)/python benchmarks/waiting.py

bench-all: bench
	for name in startup aggregate adapting embedding training methods report; do $(BIN)/python benchmarks/$$name.py || exit 1; done

# A real Label Studio, in an environment of its own, on loopback: see "A real Label Studio" in docs/research/reliability.md.
integration: $(READY) .venv-integration/.ready
	$(BIN)/python integration/label_studio.py --server .venv-integration/bin/python
	$(BIN)/python integration/live.py --server .venv-integration/bin/python

# Attacks of every kind, for hours; `make torture SHARE=0.01` is a short one.
SHARE ?= 1
torture: $(READY)
	PYTHONPATH=tests $(BIN)/python -m torture --share $(SHARE)

# Apart from `test`, as pyspark is half a gigabyte; needs Java 17 or newer.
test-spark: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt pyspark
	$(BIN)/pytest -q tests/engine/test_executors.py

docs: $(DOCS_READY)
	$(BIN)/python docs/quoted.py
	$(BIN)/mkdocs build --strict

# ---- the wheel: release/README.md --------------------------------------------------------------------------------------

OLDEST_TESTS = --ignore tests/file_io/test_downloads.py tests/labels tests/file_io tests/model tests/classifier/test_crowd_classifier.py tests/classifier/test_saving.py
OLDEST_SLOW = --ignore tests/file_io/test_downloads.py tests/file_io tests/labels/formats  # readers, and damaged files

wheel: $(READY)
	rm -rf dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python -c "from pathlib import Path; (f,) = Path('dist').glob('*.whl'); s = f.stat().st_size / 1e6; print(f'{f}: {s:.1f} MB'); assert s < 15"

test-wheel: wheel
	rm -rf .venv-wheel && $(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install --quiet --constraint constraints.txt "$$(ls dist/*.whl)[images,texts]"
	.venv-wheel/bin/python release/try_wheel.py

# The wheel without extras: what people with labels alone install.
test-no-torch: wheel
	rm -rf .venv-wheel && $(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	.venv-wheel/bin/python release/try_wheel.py --without-torch

test-oldest: wheel
	rm -rf .venv-oldest && $(PYTHON) -m venv .venv-oldest
	$(BIN)/python release/oldest.py features > .venv-oldest/oldest.txt
	.venv-oldest/bin/pip install --quiet --constraint .venv-oldest/oldest.txt "$$(ls dist/*.whl)[features]" pytest hypothesis pytest-xdist polars
	.venv-oldest/bin/python release/try_wheel.py
	.venv-oldest/bin/pytest -q -n auto -m "not slow" -k "not crowdkit and not sentences and not odd_notes" -o filterwarnings=default $(OLDEST_TESTS)
	.venv-oldest/bin/pytest -q -n auto -m slow -k "not crowdkit and not among_others" -o filterwarnings=default $(OLDEST_SLOW)

test-newest: wheel
	rm -rf .venv-newest && $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet "$$(ls dist/*.whl)[images,texts]"
	.venv-newest/bin/python release/try_wheel.py

clean:
	rm -rf .venv .venv-integration .venv-wheel .venv-oldest .venv-newest demo dist site

$(DEMO_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[images,texts,plots]'
	touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@ $(DEMO_READY)

.venv-integration/.ready:
	$(PYTHON) -m venv .venv-integration
	.venv-integration/bin/pip install --quiet '$(LABEL_STUDIO)'
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@
