# Each target is a line of uv. CONTRIBUTING.md says which of the tests when; .ci/run runs tests and checks.
.PHONY: readme setup check quick test room thorough smoke golden golden-write docs attack audit workflows

# Rooms of tests that are quick but for those marked slow (over a second), learns or thorough.
QUICK = $(addprefix library/,core data runs systems metrics tasks objectives) guards

setup:
	uv sync --group dev

check:
	uv run --group dev ruff check . && uv run --group dev ruff format --check . && uv run --group dev mypy && uv run --group dev lint-imports

quick:
	uv run --group dev ruff check . && uv run --group dev ruff format --check .
	uv run --group dev pytest -q -m "not (slow or learns or thorough)" $(QUICK:%=tests/%)

test:
	uv run --group dev pytest

# The tests that import a room of the library or a program, and the guards: make room ROOM=data, ROOM=mine
room:
	uv run --group dev pytest -q $$(grep -rlwE 'diptych[._]$(ROOM)' tests --include='test_*.py') tests/guards

thorough:
	.ci/run thorough

smoke:
	uv run --group dev pytest tests/journeys

golden:
	DIPTYCH_GOLDEN=bitwise uv run --group dev pytest -n 0 -m "thorough or not thorough" tests/golden

golden-write:
	uv run --group dev python -m tests.golden.losses --write

docs:
	uv run --group dev python -m experiments.pages

attack:
	uv run --group dev python -m tests.attack --seconds 7200 --keep

# Wants a network with PyPI's list of weaknesses; what was not answered for fails too.
audit:
	uv export --frozen --all-extras --all-groups --no-emit-project --no-hashes -q -o .audit.txt
	uvx pip-audit --strict --no-deps --disable-pip -r .audit.txt; code=$$?; rm -f .audit.txt; exit $$code

workflows:
	uvx check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

# README's commands as printed, in a fresh clone: 15 minutes; FAST=--fast: 4; PHOTOGRAPHS=FOLDER adds those on photographs
readme:
	python3 .ci/readme.py $(FAST) $(if $(PHOTOGRAPHS),--photographs $(PHOTOGRAPHS))
