"""Takes the steps that standard input has as JSON in Chromium, each a verb and its values: see ``_step``.

    python _browse.py CHROMIUM FOLDER < steps.json

Pictures are written to FOLDER. Runs in an environment that has playwright.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

MOST_MS = 180_000


def _step(page: Page, folder: Path, verb: str, *given: Any) -> None:
    if verb == "size":
        page.set_viewport_size({"width": given[0], "height": given[1]})
    elif verb in ("dark", "light"):
        page.emulate_media(color_scheme=verb)
    elif verb == "goto":
        page.goto(given[0])
    elif verb == "back":
        page.go_back()
    elif verb == "reload":
        page.reload()
    elif verb == "wait":
        page.wait_for_selector(given[0])
    elif verb == "pause":
        page.wait_for_timeout(1000 * given[0])
    elif verb == "click":
        page.click(given[0])
    elif verb == "check":
        page.check(given[0])
    elif verb == "press":
        page.keyboard.press(given[0])
    elif verb == "shoot":  # the window, or the whole page
        page.screenshot(path=folder / f"{given[0]}.png", full_page=given[1])
    elif verb == "part":
        page.locator(given[1]).screenshot(path=folder / f"{given[0]}.png")
    else:
        raise ValueError(f"no such step: {verb}")


def main() -> None:
    chromium, folder = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(MOST_MS)
        for step in json.load(sys.stdin):
            _step(page, Path(folder), *step)
        browser.close()


if __name__ == "__main__":
    main()
