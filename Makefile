# Each target is a line of uv; .ci/run runs exactly these.
.PHONY: setup check test smoke golden golden-write docs attack audit

setup:
	uv sync

check:
	uv run ruff check . && uv run ruff format --check . && uv run mypy && uv run lint-imports

test:
	uv run pytest

smoke:
	uv run pytest tests/journeys

golden:
	DIPTYCH_GOLDEN=bitwise uv run pytest -n 0 tests/golden

golden-write:
	uv run python -m tests.golden.losses --write

docs:
	uv run python -m experiments.pages

attack:
	uv run python -m tests.attack --seconds 7200 --keep

# Wants a network with PyPI's list of weaknesses; what was not answered for fails too.
audit:
	uv export --frozen --all-extras --no-emit-project --no-hashes -q -o .audit.txt
	uvx pip-audit --strict --no-deps --disable-pip -r .audit.txt; code=$$?; rm -f .audit.txt; exit $$code
