"""The dashboard, over real HTTP: what it shows, and whom it refuses."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import cloudtrain
from dashboard_client import Client, dashboard
from large_sweep import large_sweep
from local_jobs import Run, folder, wait_for_supervisor, wait_until

from cloudtrain import Job
from cloudtrain._system.files import lock
from cloudtrain.index import IndexEntry, add_job, remove_job
from cloudtrain.sweep.journal import sweeps_home

HOSTILE = "<img src=x onerror=window.hacked=1>\x1b]52;c;aGk=\x07\x1b[31m"
SCRIPT = f"""
    import sys, time

    import cloudtrain

    print({HOSTILE!r}, flush=True)
    for step in range(5000):
        cloudtrain.log(step=step, loss=1000 if step == 1777 else 1 / (step + 1))
    if sys.argv[-1] == "--wait":
        time.sleep(600)
    raise ValueError({HOSTILE!r})
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with dashboard(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A dashboard without jobs, which has been entered."""
    with dashboard(tmp_path_factory.mktemp("dashboard")) as found:
        found.enter()
        yield found


def test_the_token_becomes_a_cookie(client: Client) -> None:
    assert client.ask("/enter?token=wrong").status == 403
    assert client.ask("/").status == 401
    answer = client.enter()
    assert answer.status == 303
    assert "token" not in answer.headers["Location"]
    _, *flags = answer.headers["Set-Cookie"].split("; ")
    assert {flag.lower() for flag in flags} == {"httponly", "samesite=strict", f"path={client.root}"}
    page = client.get("")
    assert page.status == 200
    secret = client.url.rpartition("=")[2]
    assert secret not in page.body and client.cookie.partition("=")[2] not in page.body
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert page.body.count("<script") == page.body.count("<script defer src=") > 0
    for name in ("htmx.js", "uplot.js", "dashboard.js", "report.css"):
        assert client.get(f"static/{name}").status == 200
    client.cookie = "cloudtrain=x"
    assert client.get("").status == client.get("static/htmx.js").status == 401


def test_a_link_on_another_page(client: Client) -> None:
    """Its redirection would come without the cookie: the dashboard goes to its first page itself."""
    answer = client.ask(f"/enter?{client.url.partition('?')[2]}", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 200
    assert answer.body.startswith('<meta http-equiv="refresh" content="0;url=/')


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example"}, 403),  # DNS rebinding
        ("GET", {"Host": "127.0.0.1.evil.example"}, 403),
        ("GET", {"Host": "10.1.2.3"}, 403),
        ("GET", {"Host": "[::1"}, 403),
        ("GET", {"Host": ""}, 400),
        ("GET", {"Host": "localhost:9999"}, 200),  # a port that ssh forwards
        ("GET", {"Origin": "http://evil.example"}, 403),
        ("GET", {"Origin": "null"}, 403),
        ("POST", {}, 403),
        ("POST", {"Origin": "http://127.0.0.1"}, 403),  # another port
        ("GET", {"Content-Length": "999999"}, 413),
        ("GET", {"Cookie": "cloudtrain=é; x"}, 401),
    ],
)
def test_requests_that_are_refused(shared: Client, method: str, headers: dict[str, str], status: int) -> None:
    assert shared.ask(f"{shared.root}/", method, headers).status == status


@pytest.mark.parametrize(
    "path",
    [
        "static/../guard.py",
        "static/%2e%2e%2fguard.py",
        "static/base.html",
        "jobs/local/..",
        "jobs/local/%2e%2e",
        "jobs/..%2f..%2fetc/passwd",
        "jobs/local/nobody/points",
        "nothing",
    ],
)
def test_paths_that_are_not_there(shared: Client, path: str) -> None:
    assert shared.get(path).status == 404


def test_jobs_that_run_and_fail(run: Run, client: Client) -> None:
    failed = run(SCRIPT, hyperparameters={"lr": 0.1})
    running = run(SCRIPT, wait=False, hyperparameters={"lr": 0.5}, arguments=["--wait"])
    wait_until(lambda: running.metrics.get("loss") == 0.0002, "the last value")
    client.enter()
    assert failed.name in client.get("").body  # from the index: no platform is queried
    wait_until(lambda: "Running" in client.get("rows").body, "the answer of the platform")
    rows = client.get("rows").body
    assert "Failed" in rows and "Running" in rows and "raised ValueError" in rows
    page = _page(client, failed.name)
    assert page.index("raised ValueError") < page.index("Now") < page.index("Parameters")
    for text in (rows, page):
        assert "<img" not in text and "\x1b" not in text and "&lt;img src=x" in text
    wait_until(lambda: _points(client, failed.name)["is_whole"], "all values")
    loss = _points(client, failed.name)["metrics"]["loss"]
    assert (loss["count"], max(loss["y"])) == (5000, 1000)
    assert len(loss["x"]) <= 2000
    both = client.get(f"compare?job=local/{failed.name}&job=local/{running.name}").body
    assert "<td>0.1</td><td>0.5</td>" in both
    assert client.get("rows?where=loss%20%3C%201&sort=lr&group=status").body.count("group") >= 2
    assert "is not a condition" in client.get("rows?where=loss%20%3C").body
    wait_until(lambda: "img src" in client.get(f"jobs/local/{running.name}/lines").body, "the lines")
    lines = client.get(f"jobs/local/{running.name}/lines").body
    assert "&lt;img src=x" in lines and "<img" not in lines and "\x1b" not in lines
    assert "0]" not in client.get(f"jobs/local/{running.name}/lines?rank=7").body
    assert "[rank 0]" in client.get(f"jobs/local/{running.name}/lines?rank=0&part=ONERROR").body
    assert "there is nothing to take away" in client.post(f"jobs/local/{failed.name}/preempt").body
    assert client.post(f"jobs/local/{running.name}/delete").status == 404
    assert client.get(f"jobs/local/{running.name}/stop").status == 405
    assert "is stopping" in client.post(f"jobs/local/{running.name}/stop").body
    events = client.get(f"jobs/local/{running.name}/live").body  # it ends with the job
    assert "event: phases" in events and events.rstrip().endswith("event: ended\r\ndata:")
    assert "\x1b" not in events
    assert "has ended: Stopped" in client.post(f"jobs/local/{running.name}/stop").body


CHECKPOINTS = """
import sys, time
from cloudtrain.checkpoint import Checkpointer
checkpointer = Checkpointer()
for step in (1, 2):
    checkpointer.save(step, {"step": step})
checkpointer.close()
print("train", flush=True)
if "--wait" in sys.argv:
    time.sleep(1000)
"""


def test_the_parts_that_are_shown_on_request(run: Run, client: Client) -> None:
    first = run(CHECKPOINTS, job_name="train", hyperparameters={"split": "train", "lr": 0.1})
    client.enter()
    page = _page(client, "train")
    assert "Hosts and ranks" in page and 'hx-get="' in page and "Resubmit" in page
    saved = client.get("jobs/local/train/checkpoints").body
    assert saved.index("<td") and saved.index("restored next") < saved.index(">1</th>")
    shown = client.get("jobs/local/train/resubmit").body
    token, name = (re.search(rule, shown)[1] for rule in (r'value="([^"]+)"', r"Resubmit as (\S+)<"))  # type: ignore[index]
    assert "&#34;split&#34;: &#34;train&#34;" in shown and "train.py" in shown
    assert "submitted already" in client.post("jobs/local/train/resubmit", "shown=x").body
    assert len(client.get("rows").body.split("checkbox")) == 2  # to show it has submitted nothing
    assert f"Submitted: {name}" in client.post("jobs/local/train/resubmit", f"shown={token}").body
    assert "submitted already" in client.post("jobs/local/train/resubmit", f"shown={token}").body
    again = Job(name, first.platform)
    again.until_final()
    assert again.status == "Completed", again.failure
    assert again.describe().checkpoint_uri == (first.describe().checkpoint_uri or "").replace(
        "/train/", f"/{name}/"
    )
    same = client.get(f"jobs/local/train/difference?other={name}").body
    assert "Their requests are the same" in same
    other = run(CHECKPOINTS, wait=False, hyperparameters={"lr": 0.5}, arguments=["--wait"])
    different = client.get(f"jobs/local/{other.name}/difference?other=train").body
    assert "<td>0.5</td><td>0.1</td>" in different and "hyperparameters.split" in different
    assert "no job other" in client.get("jobs/local/train/difference?other=other").body
    wait_until(lambda: "train" in (folder(other).path / "job.log").read_text(), "the script")
    taken = client.post(f"jobs/local/{other.name}/stacks").body
    assert "<h2>Stacks</h2>" in taken and "1 rank, at" in taken, taken
    other.stop()


def test_a_dashboard_that_is_read_only(run: Run, tmp_path: Path) -> None:
    job = run("print('done')")
    with dashboard(tmp_path, "--read-only") as client:
        client.enter()
        page = _page(client, job.name)
        assert "hx-post" not in page and "Resubmit" not in page and "Checkpoints" in page
        for action in ("stop", "download", "stacks", "resubmit"):
            assert client.post(f"jobs/local/{job.name}/{action}", "shown=x").status == 403
        assert client.get(f"jobs/local/{job.name}/resubmit").status == 403


def test_a_later_job_of_the_same_name(run: Run, client: Client) -> None:
    client.enter()
    for word in ("first", "second"):
        job = run(f"print('the {word}')", job_name="again")
        wait_until(lambda found=word: f"the {found}" in client.get("jobs/local/again/lines").body, word)
        shutil.rmtree(folder(wait_for_supervisor(job)).path)
        remove_job("again", "local")


def test_jobs_that_only_the_history_has(client: Client) -> None:
    client.enter()
    ended = {
        "status": "Completed",
        "started_at": 1790000000.0,
        "ended_at": 1790000060.0,
        "seen_at": 1790000060.0,
    }
    add_job(IndexEntry("gone", "nowhere", 1789999999.0), ended, {"lr": "0.1"})
    remove_job("gone", "nowhere")
    rows = client.get("rows?where=lr%20%3C%201").body
    assert "gone" in rows and "nowhere/gone" not in rows and "checkbox" not in rows
    found = client.get("compare?job=nowhere/gone&job=local/../../x")
    assert found.status == 200 and "2 of the selected jobs left out" in found.body


def _page(client: Client, name: str) -> str:
    """The page of a job when its events have been read."""
    path = f"jobs/local/{name}"
    wait_until(lambda: "events of the job are being read" not in client.get(path).body, "the first look")
    return client.get(path).body


def _points(client: Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.get(f"jobs/local/{name}/points").body)
    return found


def test_more_jobs_than_a_page_shows(client: Client) -> None:
    client.enter()
    for number in range(300):
        add_job(IndexEntry(f"sweep-{number:03}", "nowhere", time.time() + number))
    first = client.get("").body
    assert "1 to 100 of 300" in first and "sweep-299" in first and "sweep-199" not in first
    assert "201 to 300 of 300" in client.get("rows?page=2").body
    assert "1 to 10 of 10" in client.get("rows?name=SWEEP-29").body
    wait_until(lambda: "Unknown" in client.get("rows?name=sweep-001").body, "the answer of the platform")


def test_addresses_that_are_refused(tmp_path: Path) -> None:
    result = cloudtrain("dashboard", "--host", "0.0.0.0", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert "--plain-text" in result.err and "Traceback" not in result.err
    with dashboard(tmp_path) as other:
        port = other.place.rpartition(":")[2]
        result = cloudtrain("dashboard", "--port", port, cwd=tmp_path)
        assert result.code == 2 and f"port {port}: Address already in use" in result.err


def test_other_machines_are_served_on_request(tmp_path: Path) -> None:
    with dashboard(tmp_path, "--host", "0.0.0.0", "--plain-text") as found:
        port = found.place.rpartition(":")[2]
        found.url = f"http://127.0.0.1:{port}/enter?{found.url.partition('?')[2]}"
        found.enter()
        assert found.get("").status == 200
        assert found.ask(f"{found.root}/", headers={"Host": "evil.example"}).status == 403


def test_idle_connections_do_not_keep_the_owner_out(client: Client) -> None:
    """200 of them made the server answer 503."""
    host, _, port = client.place.rpartition(":")
    with contextlib.ExitStack() as stack:
        for number in range(450):
            idle = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            with contextlib.suppress(OSError):  # it was closed
                idle.sendall(b"GET / HTTP/1.1\r\nX-Slow: " if number % 2 else b"")
        assert client.enter().status == 303
        assert client.get("").status == 200


def test_a_second_ctrl_c_prints_no_traceback(tmp_path: Path) -> None:
    with dashboard(tmp_path, interrupts=2) as found:
        assert found.enter().status == 303


def test_the_page_of_a_sweep(client: Client) -> None:
    client.enter()
    large_sweep("opt", 20, space={"lr": "0.0..1.0", HOSTILE: [HOSTILE, "b"]}, indexed=True)
    rows = client.get("rows").body
    assert 'sweeps/opt">opt</a>' in rows and "20 of 20 trials" in rows and "opt-0003" not in rows
    assert "opt-0003" in client.get("rows?name=opt-").body
    page = client.get("sweeps/opt").body
    assert "Parallel coordinates" in page and 'jobs/local/opt-0003"' in page and "hx-get" not in page
    assert "<img" not in page and "\x1b" not in page and "<b>boom" not in page
    assert client.get("sweeps/opt/parts").body.startswith('<div id="sweep">')
    for name in ("other", "..%2Fsweeps%2Fopt", "opt%00", "%2e%2e"):
        assert client.get(f"sweeps/{name}").status == 404
    large_sweep("half", 20, finished=False, indexed=True)
    with (sweeps_home() / "half" / "lock").open("wb") as file:
        assert lock(file.fileno())
        assert 'sweeps/half/parts" hx-trigger="every 5s"' in client.get("sweeps/half").body
    (sweeps_home() / "half" / "events.jsonl").write_text("[]\n")
    answer = client.get("sweeps/half")
    assert answer.status == 502 and "damaged" in answer.body
