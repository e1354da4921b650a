"""The value of a secret reaches the script, and stays out of every file and every answer of cloudtrain."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from file_contents import file_contents
from local_jobs import Run, folder

from cloudtrain import JobStatus
from cloudtrain.storage import state_home

VALUE = "t0ps3cr3t/" + "value" * 20 + "+1"

SCRIPT = """
    import hashlib, os, sys, time
    value = os.environ["MY_VARIABLE"]
    print("digest", hashlib.sha256(value.encode()).hexdigest())
    print("value", value, flush=True)
    sys.stdout.write("cut " + value[:7])
    sys.stdout.flush()
    time.sleep(0.1)
    print(value[7:], flush=True)
    print("end of output", file=sys.stderr, flush=True)
    raise ValueError(f"the server refused {value} at postgres://app:{'pa55' + 'w0rd'}@db/x")
"""


def test_a_secret_is_in_no_file_and_no_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_VARIABLE", VALUE)
    job = run(SCRIPT, secrets=["MY_VARIABLE"])
    assert job.status == JobStatus.FAILED
    lines = job.logs().splitlines()
    assert f"[rank 0] digest {hashlib.sha256(VALUE.encode()).hexdigest()}" in lines
    assert "[rank 0] value ***" in lines and "[rank 0] cut ***" in lines and "[rank 0] end of output" in lines
    assert job.failure
    assert job.failure.message == "the server refused *** at postgres://***@db/x"
    assert "the server refused ***" in job.failure.traceback
    shown = [*lines, str(job.describe().to_dict()), str(job.failure.to_dict())]
    assert not any(VALUE in text for text in shown)
    for place in (folder(job).path, state_home()):
        assert [path for path, data in file_contents(place) if VALUE.encode() in data] == []
    assert _modes_for_others(folder(job).path) == 0


def _modes_for_others(path: Path) -> int:
    """The permissions of a folder for its group and for others."""
    return path.stat().st_mode & 0o077
