"""Uses the dashboard with a real browser, and prints what it then shows, as JSON.

    python dashboard_page.py URL FOLDER CHROMIUM NAME...

Writes pictures into FOLDER. Runs in an environment that has playwright. The first NAME is a job that runs: it is
preempted, then stopped. The second one has completed: its results are downloaded, and it is submitted again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

CONTRAST = """
() => {
  const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1] };
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const below = light(rgba(getComputedStyle(document.body).backgroundColor));
  const of = node => {
    const own = light(rgba(getComputedStyle(node).color));
    return (Math.max(own, below) + 0.05) / (Math.min(own, below) + 0.05);
  };
  const shown = document.querySelectorAll("main :is(p, dt, dd, th, td, label, .status)");
  return Math.min(...[...shown].map(of));
}
"""
DRAWN = "() => [...document.querySelectorAll('canvas')].map(one => one.width * one.height)"
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def use(page: Page, url: str, folder: Path, names: list[str]) -> dict[str, Any]:
    running = names[0]
    page.goto(url)
    page.wait_for_selector(".status.running")
    found: dict[str, Any] = {"address": page.url, "first paint": page.evaluate(
        "() => performance.getEntriesByName('first-contentful-paint')[0].startTime")}  # fmt: skip
    page.screenshot(path=folder / "dashboard-jobs.png")
    page.keyboard.press("Tab")
    found["focus"] = page.evaluate("() => document.activeElement.textContent")
    page.fill("input[name=name]", running)
    page.wait_for_function("() => document.querySelectorAll('table.jobs tbody tr').length === 1")
    found["cookies"] = page.evaluate("() => document.cookie")
    page.fill("input[name=name]", "")
    page.wait_for_function("() => document.querySelectorAll('table.jobs tbody tr').length > 1")
    for box in page.locator("input[name=job]").all()[:2]:
        box.check()
    page.wait_for_timeout(6000)  # the rows are replaced: what is selected stays
    found["selected"] = page.locator("input[name=job]:checked").count()
    page.click("text=Compare the selected jobs")
    page.wait_for_selector("text=What differs")
    page.screenshot(path=folder / "dashboard-comparison.png")
    page.go_back()
    page.click(f"text={running}")
    page.wait_for_selector("canvas")
    before = page.inner_text("#now")
    page.wait_for_function("text => document.querySelector('#now').innerText !== text", arg=before)
    page.wait_for_selector("#lines pre")
    page.fill("input[name=part]", "onerror")
    page.wait_for_timeout(1500)
    found |= {"lines": page.inner_text("#lines"), "drawn": page.evaluate(DRAWN)}
    found["contrast"] = [page.evaluate(CONTRAST)]
    page.screenshot(path=folder / "dashboard-job.png", full_page=True)
    page.emulate_media(color_scheme="dark")
    page.reload()
    page.wait_for_selector("canvas")
    found["contrast"].append(page.evaluate(CONTRAST))
    page.screenshot(path=folder / "dashboard-dark.png")
    page.set_viewport_size({"width": 375, "height": 800})
    page.wait_for_function(f"() => ({OVERFLOW})() <= 0")  # the plots have followed the width
    page.screenshot(path=folder / "dashboard-phone.png")
    found["sweep"] = use_sweep(page, folder)
    page.go_back()
    page.go_back()
    page.wait_for_selector("canvas")
    found |= use_actions(page, running, names[1])
    found["hacked"] = page.evaluate("() => window.hacked ?? null")
    return found


def use_actions(page: Page, running: str, completed: str) -> dict[str, Any]:
    """Each action of the pages of two jobs, as a person clicks it; and what the page then shows."""
    found: dict[str, Any] = {"asked": [], "again": []}
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.click("button:has-text('Stop')")  # and think better of it
    page.on("dialog", lambda dialog: (found["asked"].append(dialog.message), dialog.accept()))
    page.click("button:has-text('Preempt')")
    found["preempted"] = _result(page)
    page.wait_for_function(
        "() => /retries\\s+1/.test(document.querySelector('#now').innerText)", timeout=120_000
    )
    page.wait_for_selector(".status.running", timeout=120_000)
    page.click("header a")
    page.click(f"text={completed}")
    page.click("button:has-text('Download')")
    found["downloaded"] = _result(page)
    page.click("button:has-text('Resubmit')")
    page.wait_for_selector("text=Resubmit as")
    found["request"] = page.inner_text("#result pre")
    page.click("text=Submit exactly this")
    found["submitted"] = _result(page)
    page.click("header a")
    page.wait_for_selector(f"text={found['submitted'].split()[-1]}")
    page.click(f"text={running}")
    page.click("button:has-text('Stop')")
    found["stopped"] = _result(page)
    page.wait_for_selector(".status.stopped", timeout=120_000)
    return found


def _result(page: Page) -> str:
    """The text of an action that succeeded; it replaces that of another job or action."""
    page.wait_for_selector("#result .success, #result .warning", timeout=120_000)
    text = page.inner_text("#result")
    assert page.locator("#result .success").count() == 1, text
    page.evaluate("() => document.querySelector('#result').replaceChildren()")
    return text


def use_sweep(page: Page, folder: Path) -> dict[str, Any]:
    """Its page, on a phone in the dark; opened with the keyboard."""
    page.click("header a")
    page.focus("text=opt")
    page.keyboard.press("Enter")
    page.wait_for_selector("svg polyline title", state="attached")
    lines = page.locator("svg polyline title").count()
    found = {"lines": lines, "contrast": page.evaluate(CONTRAST), "overflow": page.evaluate(OVERFLOW)}
    page.set_viewport_size({"width": 1100, "height": 720})
    page.emulate_media(color_scheme="light")
    page.screenshot(path=folder / "dashboard-sweep.png", full_page=True)
    return found


def main() -> None:
    url, folder, chromium, *names = sys.argv[1:]
    seen: dict[str, list[str]] = {"errors": [], "elsewhere": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 720})
        page.on("pageerror", lambda error: seen["errors"].append(str(error)))
        page.on("console", lambda said: seen["errors"].append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith((url.split("/enter")[0], "data:"))
            else seen["elsewhere"].append(request.url),
        )  # fmt: skip
        print(json.dumps({**use(page, url, Path(folder), names), **seen}))
        browser.close()


if __name__ == "__main__":
    main()
