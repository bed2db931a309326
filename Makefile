# Every target makes .venv when it is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench clean

demo: $(READY)
	$(BIN)/crowdshot demo

test: $(READY)
	$(BIN)/pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	for name in aggregate adapting training methods report; do $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:
	rm -rf .venv demo

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@
