# Every target makes .venv when it is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready
LABEL_STUDIO ?= label-studio==1.23.2

.PHONY: demo test lint bench docs integration clean

demo: $(READY)
	$(BIN)/crowdshot demo

test: $(READY)
	$(BIN)/pytest -q -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	for name in aggregate adapting embedding training methods report; do $(BIN)/python benchmarks/$$name.py || exit 1; done

# A real Label Studio, in an environment of its own, on loopback: see "Checked against a real server" in docs/formats.md.
integration: $(READY) .venv-integration/.ready
	$(BIN)/python integration/label_studio.py --server .venv-integration/bin/python
	$(BIN)/python integration/live.py --server .venv-integration/bin/python

docs: $(DOCS_READY)
	$(BIN)/python docs/quoted.py
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .venv-integration demo site

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

.venv-integration/.ready:
	$(PYTHON) -m venv .venv-integration
	.venv-integration/bin/pip install --quiet '$(LABEL_STUDIO)'
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@
