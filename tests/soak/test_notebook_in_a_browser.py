"""The card of a job in JupyterLab, in a real browser: JupyterLab's own styles must not break it, in either theme."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from browser import find_chromium, programs_with
from slurm_cluster import free_ports

PACKAGES = ("jupyterlab>=4.6,<5", "playwright")
CELLS = (
    """
    from cloudtrain import Estimator
    Estimator("train.py", metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}]).fit()
    """,
    "Estimator('broken.py').fit(logs=False)",
)
TRAIN = """
import time
for step in range(10):
    print(f"loss={1 / (step + 1):.3f}", flush=True)
    time.sleep(0.1)
"""
BROKEN = "raise ValueError('<img src=x onerror=window.hacked=1><script>window.hacked=2</script>')"


@pytest.fixture(scope="module")
def chromium() -> str:
    found = find_chromium()
    if not found:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "there is no chromium"
        pytest.skip("there is no chromium")
    return found


@pytest.fixture(scope="module")
def programs() -> Path:
    return programs_with(PACKAGES, "notebook_browser")


@contextmanager
def jupyterlab(programs: Path, folder: Path, theme: str) -> Iterator[str]:
    """The address of a JupyterLab for ``folder``, whose kernel is this Python."""
    kernel = folder / "data" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"})
    )
    settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": f"JupyterLab {theme}"}))
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    [port] = free_ports(1)
    options = ["--allow-root", "--no-browser", f"--port={port}", "--IdentityProvider.token="]
    environ = {
        **os.environ,
        "HOME": str(folder),
        "JUPYTER_PATH": str(folder / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "CLOUDTRAIN_HOME": str(folder / "home"),
    }
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [str(programs / "jupyter"), "lab", *options, f"--notebook-dir={folder}"],
            env=environ,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(f"http://localhost:{port}/api")
        yield f"http://localhost:{port}/lab/tree/jobs.ipynb"
    finally:
        server.terminate()
        server.wait(60)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(address).close()
            return
        except OSError:
            assert time.monotonic() < deadline, address
            time.sleep(0.3)


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_card_in_jupyterlab(theme: str, chromium: str, programs: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "broken.py").write_text(BROKEN)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [nbformat.v4.new_code_cell(textwrap.dedent(cell).strip()) for cell in CELLS]
    nbformat.write(notebook, tmp_path / "jobs.ipynb")
    with jupyterlab(programs, tmp_path, theme) as address:
        look = [
            str(Path(__file__).with_name("lab_page.py")),
            address,
            str(tmp_path / "notebook.png"),
            chromium,
        ]
        done = subprocess.run(
            [str(programs / "python"), *look], stdout=subprocess.PIPE, text=True, check=True, timeout=280
        )
    page = json.loads(done.stdout)
    assert page["dark"] == (theme == "Dark")
    trained, broken = page["cards"]
    assert "Completed" in trained and "loss" in trained
    assert "Failed" in broken and "ValueError: <img src=x onerror=window.hacked=1><script>" in broken
    assert max(page["heights"]) < 30  # each label is one line
    assert page["contrast"] >= 4.5  # WCAG 2, AA
    assert min(page["pictures"]) > 100
    assert (page["scripts"], page["hacked"], page["errors"], page["elsewhere"]) == (0, None, [], [])
