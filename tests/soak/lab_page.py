"""Runs a notebook in JupyterLab with a real browser, and prints what the page then is, as JSON.

    python lab_page.py URL SCREENSHOT CHROMIUM

Runs in an environment that has playwright.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from playwright.sync_api import sync_playwright

LOOK = """
() => {
  const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1] };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = c => [0, 1, 2].map(i => c[i] / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    const layers = [];
    for (; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const contrast = node => {
    const style = getComputedStyle(node), below = behind(node), colour = rgba(style.color);
    const [a, b] = [light(over([...colour.slice(0, 3), colour[3] * style.opacity], below)), light(below)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const all = selector => [...document.querySelectorAll(`.cloudtrain-job :is(${selector})`)];
  return {
    dark: document.body.dataset.jpThemeLight === 'false',
    cards: [...document.querySelectorAll('.cloudtrain-job')].map(card => card.innerText),
    heights: all('dt').map(label => label.getBoundingClientRect().height),
    contrast: Math.min(...all('b, dt, dd, p, code, summary, .dim').map(contrast)),
    pictures: all('polyline').map(one => one.getBoundingClientRect().width),
    scripts: all('script, img, iframe, link').length,
    hacked: window.hacked ?? null,
  };
}
"""


def main() -> None:
    url, screenshot, chromium = sys.argv[1:]
    seen: dict[str, list[str]] = {"errors": [], "elsewhere": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1250, "height": 1400})
        page.on("pageerror", lambda error: seen["errors"].append(str(error)))

        def on_request(request: Any) -> None:
            if not request.url.startswith((url.split("/lab")[0], "data:", "blob:")):
                seen["elsewhere"].append(request.url)

        page.on("request", on_request)
        page.goto(url)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=120_000)
        page.wait_for_selector("text=| Idle", timeout=60_000)
        page.wait_for_timeout(3000)  # a cell that is run before the kernel is connected does not run
        page.click(".jp-Notebook .jp-Cell >> nth=0")
        try:
            for state in ("completed", "failed"):
                page.keyboard.press("Shift+Enter")
                page.wait_for_selector(f".cloudtrain-job.is-{state}", timeout=60_000)
            found = page.evaluate(LOOK)
        finally:
            page.locator(".jp-Notebook .jp-Cell").first.screenshot(path=screenshot)
        browser.close()
    print(json.dumps({**found, **seen}))


if __name__ == "__main__":
    main()
