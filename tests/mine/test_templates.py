"""Lead images on templates of modern sites (experiments/page_templates.py): each template by itself meets the bars."""

import pytest

from experiments.page_templates import TEMPLATES, figures


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, float]]:
    return figures(8)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_lead_image_of_a_modern_template_is_chosen(table: dict[str, dict[str, float]], name: str) -> None:
    assert table[name]["precision"] >= 95
    assert table[name]["recall"] >= 90
