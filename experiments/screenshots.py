"""Make docs/serving.png, the picture of a running service's page.

uv run --group dev python -m experiments.screenshots http://127.0.0.1:8000 docs/serving.png
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

EXAMPLE = 0  # its number among the examples
WORD = "dress"  # of its caption; else the last word


def main() -> None:
    """Caption an example, and choose a word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
        page.goto(given.address)
        page.locator("#examples button").nth(EXAMPLE).click()
        expect(page.locator("#status")).to_contain_text("Done", timeout=60_000)
        words = page.locator(".words button")
        named = words.filter(has_text=WORD)
        (named if named.count() else words).last.hover()
        page.screenshot(path=given.out)


if __name__ == "__main__":
    main()
