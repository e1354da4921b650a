"""Notifications of local jobs, sent to real servers by what outlives the terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_contents import file_contents
from local_jobs import Run, folder, wait_until
from notification_servers import Receiver, mailbox

from cloudtrain import Job, JobStatus
from cloudtrain.runtime.notifications.outbox import NOTIFICATIONS_BEAT, Outbox
from cloudtrain.runtime.ports import free_port
from cloudtrain.storage import state_home

TOKEN = "t0ken" + "/B0" * 10
FAILS = "raise ValueError('no \\x1b[31m<!channel> batches')"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().up() as found:
        yield found


def wait_for(receiver: Receiver, count: int) -> None:
    wait_until(lambda: len(receiver.posts) >= count, f"{count} notifications")
    time.sleep(1.5)  # for more than that
    assert len(receiver.posts) == count


def test_each_kind_of_place_gets_one_notification_of_a_failure(
    run: Run, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", f"{receiver.url}/hook/{TOKEN}")
    monkeypatch.setenv("SLACK", f"{receiver.url}/slack/{TOKEN}")
    written, port = tmp_path / "written", free_port()
    line = "os.environ['CLOUDTRAIN_NOTIFICATION'] + sys.stdin.read() + chr(10)"
    program = f"import os, sys; open({str(written)!r}, 'a').write({line})"
    rules = [
        {"webhook": "$HOOK"},
        {"on": "failed", "slack": "$SLACK"},
        {"on": ["completed"], "webhook": "$HOOK"},
        {"email": "team@example.org", "smtp": f"127.0.0.1:{port}", "sender": "jobs@example.org"},
        {"command": [sys.executable, "-c", program]},
    ]
    script = f"import os\nassert 'HOOK' not in os.environ, 'the script has it'\n{FAILS}"
    with mailbox(port) as box:
        job = run(script, notify=rules)
        wait_until(
            lambda: len(receiver.posts) >= 2 and box.messages and written.exists(), "the notifications"
        )
        wait_until(lambda: not Outbox(folder(job).path).has_sender, "the end of the courier")
    assert job.status == JobStatus.FAILED and len(receiver.posts) == 2 and len(box.messages) == 1
    hook = next(post for post in receiver.posts if post.path.startswith("/hook"))
    slack = next(post for post in receiver.posts if post.path.startswith("/slack"))
    assert hook.path == f"/hook/{TOKEN}"
    content = hook.content
    assert content["key"] == hook.headers["webhook-id"] and content["key"].endswith("/end")
    assert content["event"] == "failed" and content["job"] == job.name and content["rank"] == 0
    assert content["summary"] == r"rank 0 on algo-1 raised ValueError: no \x1b[31m<!channel> batches"
    assert content["commands"] == [f"cloudtrain describe {job.name}", f"cloudtrain logs {job.name} --rank 0"]
    assert "&lt;!channel&gt;" in slack.content["text"] and "<" not in slack.content["text"]
    assert f"job {job.name} failed" in slack.content["text"]
    [message] = box.messages
    assert message["Subject"] == f"[cloudtrain] job {job.name} failed" and message["To"] == "team@example.org"
    assert "ValueError" in message.get_content() and message["X-Cloudtrain-Key"] == content["key"]
    assert written.read_text().count("\n") == 1 and written.read_text().startswith("failed{")
    for place in (folder(job).path, state_home()):
        assert [path for path, data in file_contents(place) if TOKEN.encode() in data] == []
    assert TOKEN not in str(job.describe().to_dict())


def test_a_notification_arrives_when_its_endpoint_is_back_after_the_job_has_ended(run: Run) -> None:
    receiver = Receiver(statuses=[503, 200], port=free_port())
    job = run("print('done')", notify=[{"webhook": receiver.url}])
    wait_until(lambda: Outbox(folder(job).path).read().failed, "a try that failed")
    warnings = job.describe().warnings
    assert any("has not arrived" in warning and "refused" in warning for warning in warnings), warnings
    with receiver.up():
        wait_for(receiver, 1)
        wait_until(lambda: job.describe().warnings == [], "the courier's note that it has arrived")
    assert [post.content["event"] for post in receiver.tried] == ["completed", "completed"]
    assert len({post.headers["webhook-id"] for post in receiver.tried}) == 1


def test_a_killed_supervisor_is_notified_once(run: Run, receiver: Receiver) -> None:
    job = run("import time; time.sleep(600)", notify=[{"webhook": receiver.url}], wait=False)
    wait_until(lambda: job.status == JobStatus.RUNNING, "the job to run")
    pid = folder(job).read_record().pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_for(receiver, 1)
    [content] = receiver.contents
    assert content["event"] == "failed" and "the supervisor of the job is gone" in content["summary"]
    assert job.status == JobStatus.FAILED  # the client closes the record: that is not another notification
    wait_for(receiver, 1)


def test_preemptions_and_costs_are_notified_while_the_job_continues(run: Run, receiver: Receiver) -> None:
    script = """
        import os, time
        if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
            time.sleep(600)
    """
    rules = [
        {"webhook": receiver.url},
        {"on": "cost", "webhook": f"{receiver.url}/cost", "cost_above": 0.01, "price_per_hour": 1000},
    ]
    job = run(script, notify=rules, wait=False)
    wait_until(lambda: job.status == JobStatus.RUNNING and folder(job).log.exists(), "the job to run")
    wait_until(lambda: job.describe().phase == "train", "the ranks")
    job.preempt()
    wait_for(receiver, 3)
    others = [content["event"] for content in receiver.contents if content["event"] != "cost"]
    assert sorted(others) == ["completed", "preempted"], (
        "sent at the same time if the second attempt is short"
    )
    [cost] = [post for post in receiver.posts if post.path == "/cost"]
    assert cost.content["event"] == "cost" and "more than $0.01" in cost.content["summary"]


def test_the_notice_of_a_cost_is_at_the_frozen_price_and_sent_once(
    run: Run, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("prices: {currency: EUR, rows: [{platform: local, node_hour: 36}]}")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(prices))
    rules = [{"on": "cost", "webhook": receiver.url, "cost_above": 0.01, "price_per_hour": 100_000}]
    script = """
        import os, sys, time
        if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
            sys.exit(3)
        while not os.path.exists("{go}"):
            time.sleep(0.05)
        time.sleep(2)
    """.replace("{go}", str(tmp_path / "go"))
    job = run(script, notify=rules, wait=False, max_retry_attempts=2)
    wait_until(lambda: job.describe().attempt == 1, "the second attempt")
    prices.write_text("prices: {currency: USD, rows: [{platform: local, node_hour: 900000}]}")
    (tmp_path / "go").touch()
    job.wait()
    wait_for(receiver, 1)
    [cost] = receiver.posts
    assert re.fullmatch(r"about 0\.\d+ EUR so far, more than 0\.01 EUR", cost.content["summary"]), (
        cost.content
    )
    assert "at 36.00 EUR per hour" in cost.content["text"]


def test_a_rank_that_hangs_is_notified_though_the_job_is_retried(run: Run, receiver: Receiver) -> None:
    script = """
        import os, time
        from cloudtrain.observe import beat
        if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
            beat()
            time.sleep(600)
    """
    rules = [{"on": ["hanging", "completed"], "webhook": receiver.url}]
    job = run(script, notify=rules, hang_timeout=2, max_retry_attempts=1)
    assert job.status == JobStatus.COMPLETED
    wait_for(receiver, 2)
    hangs, completed = sorted(receiver.contents, key=lambda content: content["attempt"])
    assert (hangs["event"], hangs["failure_class"], hangs["attempt"]) == ("hanging", "hang", 0)
    assert "rank 0 on algo-1 hangs" in hangs["summary"] and "restarts" in hangs["text"]
    assert (completed["event"], completed["attempt"]) == ("completed", 1)


def couriers(job: Job) -> list[int]:
    """The processes that send the notifications of a job."""
    place = str(folder(job).path)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if place in words and any("courier" in word for word in words):
            found.append(int(process.name))
    return found


def notify(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cloudtrain", "notify", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_a_killed_courier_had_sent_is_sent_once_more_with_the_same_key(run: Run) -> None:
    answered = threading.Event()
    with Receiver(hangs=answered).up() as receiver:
        job = run("print('done')", notify=[{"webhook": receiver.url}])
        wait_until(lambda: receiver.tried, "the request")
        [pid] = couriers(job)
        os.kill(pid, signal.SIGKILL)  # the server has the request, and nothing marks it as sent
        answered.set()
        wait_until(lambda: not couriers(job), "the end of the courier")
        done = notify(job.name)
        assert done.wait(60) == 0 and done.stdout and done.stdout.read() == "completed (webhook): sent\n"
        again = notify(job.name, "--json")
        assert again.wait(60) == 0 and again.stdout and again.stdout.read() == "[]\n"
    assert len({post.headers["webhook-id"] for post in receiver.tried}) == 1 and len(receiver.tried) == 2


def test_a_courier_that_is_paused_or_gone_does_not_look_healthy(run: Run, receiver: Receiver) -> None:
    job = run("import time; time.sleep(600)", wait=False, notify=[{"webhook": receiver.url}])
    beat = folder(job).path / NOTIFICATIONS_BEAT
    try:
        wait_until(
            lambda: job.status == JobStatus.RUNNING and beat.exists() and beat.read_text(), "a heartbeat"
        )
        assert abs(int(beat.read_text()) - time.time()) < 120 and job.describe().warnings == []
        [pid] = couriers(job)
        os.kill(pid, signal.SIGSTOP)
        try:
            beat.write_text(f"{int(time.time()) - 600:011d}\n")
            [warning] = job.describe().warnings
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "no sign of life for 10 min" in warning and f"cloudtrain notify {job.name}" in warning
        wait_until(lambda: job.describe().warnings == [], "a sign of life")
    finally:
        job.stop()


def test_three_watchers_together_send_one_notification(run: Run, receiver: Receiver, tmp_path: Path) -> None:
    job = run("import time; time.sleep(2)", wait=False)
    rules = tmp_path / "notify.yaml"
    rules.write_text(f"notify: {{webhook: {receiver.url}, on: completed}}\n")
    watchers = [notify(job.name, "--wait", "--with", str(rules)) for _ in range(3)]
    wait_for(receiver, 1)
    for watcher in watchers:
        _, errors = watcher.communicate(timeout=240)
        assert watcher.returncode == 0, errors
    [content] = receiver.contents
    assert content["event"] == "completed" and content["job"] == job.name


def test_a_supervisor_that_is_paused_does_not_look_healthy(run: Run) -> None:
    job = run("import time; time.sleep(600)", wait=False)
    wait_until(lambda: job.status == JobStatus.RUNNING, "the job to run")
    pid = folder(job).read_record().pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        before = time.time() - 600
        for path in folder(job).path.iterdir():
            if path.is_file():
                os.utime(path, (before, before))
        [warning] = job.describe().warnings
        assert f"process {pid}" in warning and "no sign of life for 10 min" in warning
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: job.describe().warnings == [], "a sign of life")
