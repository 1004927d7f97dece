"""Fixtures of the page's tests."""

from tests.support.chromium import browser, docs, page, served

__all__ = ["browser", "docs", "page", "served"]
