# Short names of the scripts; `make` lists them.
.DEFAULT_GOAL := help
.PHONY: help test lint types docs bench coverage release
PYTHON ?= .venv/bin/python
ARGS ?=

help: ## list the targets; ARGS="..." passes options on
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10
test: ## make .venv, install, run ruff, mypy and all tests
	bash tools/test.sh $(ARGS)
lint: ## check style and formatting
	$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check .
types: ## check types
	$(PYTHON) -m mypy
docs: ## build the documentation site; needs the extra `docs`
	$(PYTHON) -m sphinx -W --keep-going -n docs build/site
bench: ## speed and WER of the WFST search against kaldi-decoder
	$(PYTHON) -m tools.bench.wfst $(ARGS)
coverage: ## run tests and report covered lines; ARGS="tests/io" runs some
	$(PYTHON) -m pytest -n 0 --cov --cov-report=term --cov-report=xml:build/coverage.xml $(ARGS)
release: ## make wheels and sdist, and try them
	$(PYTHON) tools/release.py $(ARGS)
