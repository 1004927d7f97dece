"""Make the screenshots in README and docs with a browser.

    uv run --group dev python -m experiments.screenshots http://127.0.0.1:8000 docs/serving.png
    uv run --group dev python -m experiments.screenshots demo/report.html docs/report.png

The first argument is the address of a running service, or the report of a demo. Needs `chromium`.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

EXAMPLE = 0  # index of the example to caption
WORD = "flower"  # word of the caption to select; if it is missing, the last word
CARDS = 2  # number of a report's test images to show
MARGIN = 10  # pixels around the images


def service(browser: Browser, address: str, out: Path) -> None:
    """Caption an example on a service's page, select a word, and write the screenshot to `out`."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    page.goto(address)
    page.locator("#examples button").nth(EXAMPLE).click()
    expect(page.locator("#status")).to_contain_text("Done", timeout=60_000)
    words = page.locator(".words button")
    named = words.filter(has_text=WORD)
    (named if named.count() else words).last.hover()
    page.screenshot(path=out)


def report(browser: Browser, file: Path, out: Path) -> None:
    """Write a screenshot of a demo's report: the first test images, and the sentence about how they were chosen."""
    page = browser.new_page(viewport={"width": 900, "height": 1600}, color_scheme="light")
    page.goto(file.resolve().as_uri())
    section = page.locator("#pictures")
    section.locator(f"article:nth-of-type(n + {CARDS + 1})").evaluate_all(
        "cards => cards.forEach(card => card.remove())"
    )
    box = section.bounding_box()
    assert box is not None
    page.screenshot(
        path=out,
        full_page=True,
        clip={
            "x": box["x"] - MARGIN,
            "y": box["y"] - MARGIN,
            "width": box["width"] + 2 * MARGIN,
            "height": box["height"] + 2 * MARGIN,
        },
    )


def main() -> None:
    """Make a screenshot of a service's page or, if the argument is a file, of a report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shown", help="Address of a service, or the report.html of a demo.")
    parser.add_argument("out", type=Path, help="PNG file to write.")
    given = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if Path(given.shown).is_file():
            report(browser, Path(given.shown), given.out)
        else:
            service(browser, given.shown, given.out)


if __name__ == "__main__":
    main()
