"""Jobs are found by every client: after a race for one name, and from a machine that has submitted none."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from click.testing import CliRunner
from kube_fixtures import Namespace

from cloudtrain.cli.list import command
from cloudtrain.cli.stop import command as stop
from cloudtrain.errors import JobExists
from cloudtrain.index import find_job
from cloudtrain.job import Job
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden
from cloudtrain.platforms.kubernetes.places import Places, Ticket
from cloudtrain.submission import prepare

NAMES = ("race-0", "race-1", "race-2")


def test_a_name_that_two_clients_submit_leads_to_the_job_that_runs(
    kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    together = Barrier(2)

    def submit(name: str) -> bool:
        fields = {"entry_point": str(tmp_path / "train.py"), "image_uri": "python:3.12", "job_name": name}
        options = {"discard_outputs": True, "gpus": 64}
        ready = prepare({**fields, "platform": "kubernetes", "platform_options": options}, defaults={})
        together.wait(120)
        try:
            ready.submit()
        except JobExists:
            return False
        return True

    for name in NAMES:
        with ThreadPoolExecutor(2) as clients:
            assert sorted(clients.map(submit, [name] * 2)) == [False, True]
        ticket = Places().tickets.read(name)
        assert ticket and ticket.uid == Places().find(name).uid != ""
        assert find_job(name)

    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "another-machine"))
    listed = CliRunner().invoke(command, ["--platform", "kubernetes", "--json"])
    assert sorted(job["name"] for job in json.loads(listed.stdout)) == [*NAMES]
    assert CliRunner().invoke(command, ["--json"]).stdout.strip() == "[]"
    found = Job.attach("race-1")
    assert "race-*" in str(CliRunner().invoke(stop, ["race-*"]).exception)  # they may be a colleague's
    assert not found.describe().status.is_final

    there = Places().api()
    Places().tickets.write("elsewhere", Ticket(there.context, there.namespace))
    subprocess.run(
        ["kubectl", "config", "set-context", "--current", "--namespace=default"],
        check=True,
        capture_output=True,
    )
    assert Places().find("race-2").api.namespace == there.namespace
    with pytest.raises(KubeForbidden, match="in the namespace default"):  # it may be there
        Places().find("race-9")
