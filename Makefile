# Each target is a line of uv; .ci/run runs exactly these.
.PHONY: setup check test smoke golden golden-write docs attack audit

setup:
	uv sync --group dev

check:
	uv run --group dev ruff check . && uv run --group dev ruff format --check . && uv run --group dev mypy && uv run --group dev lint-imports

test:
	uv run --group dev pytest

smoke:
	uv run --group dev pytest tests/journeys

golden:
	DIPTYCH_GOLDEN=bitwise uv run --group dev pytest -n 0 tests/golden

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
