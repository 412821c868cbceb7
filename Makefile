# Everything a newcomer types. `make` alone explains itself.
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint render lock

BIN := .venv/bin
# What is compiled once is not compiled again for every process that demo and tests start.
export PYTHONDONTWRITEBYTECODE :=
ARGS ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup: ## Install what demo and test need, below this checkout only
	@scripts/setup

demo: setup ## The whole loop on this machine; options: make demo ARGS="--for 120"
	@$(BIN)/trimtab demo $(ARGS)

test: setup lint ## Style, types, import directions and all tests
	@$(BIN)/pytest -n 2 --dist loadfile

lint: setup ## Style, types and who may import whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

render: setup ## Write generated files anew; they are committed, and tests compare them
	@$(BIN)/trimtab policy schema > policies/schema.json
	@$(BIN)/python -m alerts.render

lock: setup ## Lock dependencies anew after a change in pyproject.toml (needs uv on PATH)
	@uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-find-links --upgrade --quiet -o requirements.lock
