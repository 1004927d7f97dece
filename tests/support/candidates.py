"""The pictures that a page's candidates leave."""

from tests.support.web_pages import TEXT, page

NEWS = f"<main><article><h1>Kites</h1>{TEXT}%s{TEXT}</article></main>"


def chosen(body: str, head: str = "", **more: object) -> list[str]:
    """Addresses of the images that lead the page."""
    return [row["address"] for row in page(body, head, **more).rows if not {"dominant", "address"} & set(row["fails"])]
