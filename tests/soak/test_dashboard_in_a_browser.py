"""The dashboard in a real browser: what a person sees and does, in light, dark, and on a phone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from browser import find_chromium, programs_with
from dashboard_client import dashboard
from large_sweep import large_sweep

from cloudtrain import Estimator, Job, JobStatus

SCRIPT = """
import math, os, random, sys, time
from pathlib import Path

import cloudtrain

lr = float(sys.argv[sys.argv.index("--lr") + 1])
print("<img src=x onerror=window.hacked=1>\\x1b]52;c;aGk=\\x07", flush=True)
for step in range(1, 601):
    spike = 3 if step == 333 else 0
    loss = 2.3 * math.exp(-step * lr / 60) + random.random() / 10 + spike
    cloudtrain.log(step=step, loss=loss, accuracy=1 - math.exp(-step * lr / 50), total_steps=600)
    if step % 20 == 0:
        print(f"epoch {step // 20}", flush=True)
    if lr == 0.3:
        time.sleep(0.3)
Path(os.environ["SM_MODEL_DIR"], "weights.txt").write_text(str(lr))
if lr > 1:
    raise ValueError("the loss is not finite: <b>check the rate</b>")
"""


@pytest.mark.timeout(600)
def test_the_dashboard_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the dashboard downloads to
    chromium, python = find_chromium(), programs_with() / "python"
    assert chromium, "there is no chromium: apt-get install chromium"
    (tmp_path / "train.py").write_text(SCRIPT)
    for name, rate in (("rate-base", 0.1), ("rate-too-fast", 2.0), ("rate-live", 0.3)):
        estimator = Estimator("train.py", source_dir=str(tmp_path), hyperparameters={"lr": rate})
        job = estimator.fit(wait=False, job_name=name)
        if name != "rate-live":
            job.until_final()
    large_sweep("opt", 50, indexed=True)
    look = str(Path(__file__).with_name("dashboard_page.py"))
    try:
        with dashboard(tmp_path) as client:
            command = [str(python), look, client.url, str(tmp_path), chromium, "rate-live", "rate-base"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=450)
    finally:
        job.stop()
        job.until_final()
    page = json.loads(done.stdout)
    assert (page["errors"], page["elsewhere"], page["hacked"], page["cookies"]) == ([], [], None, "")
    assert "token" not in page["address"]
    assert page["focus"] == "Skip to the content"
    assert page["selected"] == 2
    assert page["lines"].strip() == r"[rank 0] <img src=x onerror=window.hacked=1>\x1b]52;c;aGk=\x07"
    assert len(page["drawn"]) == 2 and min(page["drawn"]) > 10_000
    assert min(page["contrast"]) >= 4.5  # WCAG 2, AA, in light and dark
    assert page["sweep"]["lines"] == 43 and page["sweep"]["contrast"] >= 4.5
    assert page["sweep"]["overflow"] <= 0  # a phone scrolls tables, not the page
    assert page["asked"] == ["Preempt rate-live?", "Stop rate-live?"]
    assert "preempted" in page["preempted"] and "is stopping" in page["stopped"]
    assert job.describe().attempt == 1
    downloaded = Path(page["downloaded"].partition(": ")[2])
    assert downloaded.is_relative_to(tmp_path / "rate-base") and downloaded.exists()
    request = json.loads(page["request"])
    assert (
        page["submitted"].strip() == f"Submitted: {request['job_name']}"
        and "lr" in request["hyperparameters"]
    )
    assert Job.attach(request["job_name"]).until_final().status == JobStatus.COMPLETED
