"""Edge cases: between phases, attempts and jobs, and with damaged files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_jobs import DAEMONS, TWO_RANKS, Run, events, folder, live_processes, wait_for_end, wait_until

from cloudtrain import FailureClass, InvalidJob, JobStatus
from cloudtrain.errors import JobNotFound
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.runtime.launchers.launch import process_lives

TORCHRUN = {"torch_distributed": {"processes_per_host": 2}}


@pytest.mark.parametrize("command", ["submit --platform local", "run"])
def test_too_few_open_files(tmp_path: Path, command: str) -> None:
    """Ranks and supervisor would hang, or end with a traceback somewhere."""
    (tmp_path / "train.py").write_text("print('x')")
    program = f"ulimit -n 12; exec {sys.executable} -m cloudtrain {command} train.py"
    done = subprocess.run(["sh", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert "can open only 12 files, and a job needs 64: raise ulimit -n" in done.stderr


def test_under_torchrun_the_killed_rank_is_the_cause_and_not_one_that_saved_and_exited(run: Run) -> None:
    job = run(
        """
        import os, signal, sys, time
        def save(*_):
            print("saving", flush=True)
            sys.exit(143)
        signal.signal(signal.SIGTERM, save)
        if os.environ["RANK"] == "1":
            time.sleep(0.5)
            os.kill(os.getpid(), 9)
        time.sleep(600)
        """,
        distribution=TORCHRUN,
    )
    failure = job.failure
    assert failure
    assert (failure.rank, failure.signal, failure.exit_code) == (1, 9, 137)


def test_under_torchrun_the_exit_code_is_the_ranks_while_another_is_slow_to_end(run: Run) -> None:
    job = run(
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, lambda *_: time.sleep(20))
        if os.environ["RANK"] == "1":
            time.sleep(0.5)
            os._exit(9)
        time.sleep(600)
        """,
        distribution=TORCHRUN,
    )
    failure = job.failure
    assert failure
    assert (failure.rank, failure.exit_code, failure.signal) == (1, 9, None)


@pytest.mark.parametrize("delay", [0.2, 1.0, 2.0])
def test_a_stop_while_torchrun_starts_does_not_wait_for_the_grace(run: Run, delay: float) -> None:
    job = run(
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(0))\nprint('on', flush=True)\ntime.sleep(600)",
        wait=False,
        distribution=TORCHRUN,
        stop_grace=120,
    )
    wait_until(lambda: events(job, "launch"), "the launch")
    time.sleep(delay)
    job.stop()
    wait_for_end(job, 90)
    assert job.status == JobStatus.STOPPED
    assert live_processes(job) == []


def test_a_stop_as_an_attempt_fails_prevents_the_next(run: Run) -> None:
    job = run(
        """
        import os, pathlib, sys
        pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"], "..", "..", "stop").touch()
        sys.exit(1)
        """,
        max_retry_attempts=3,
    )
    # which of the two the supervisor sees first is open
    assert job.status in (JobStatus.FAILED, JobStatus.STOPPED)
    assert events(job, "retry") == []


def test_a_stop_in_the_upload_uploads_once(run: Run, tmp_path: Path) -> None:
    job = run(
        "import os; open(os.environ['SM_MODEL_DIR'] + '/w', 'wb').write(os.urandom(60_000_000))",
        wait=False,
        output_path=(tmp_path / "out").as_uri(),
    )
    wait_until(lambda: [event for event in events(job, "phase") if event["phase"] == "upload"], "the upload")
    job.stop()
    wait_for_end(job)
    uploads = [
        event for event in events(job, "phase") if event["phase"] == "upload" and event["state"] == "began"
    ]
    assert len(uploads) == 1
    assert not list(folder(job).host("algo-1").base.rglob(".upload-*"))
    assert job.status in (JobStatus.STOPPED, JobStatus.COMPLETED)


def test_outputs_of_a_failed_job_can_be_downloaded(run: Run, tmp_path: Path) -> None:
    job = run(
        "import os; open(os.environ['SM_OUTPUT_DATA_DIR'] + '/plot', 'w').close(); raise ValueError('x')"
    )
    assert job.status == JobStatus.FAILED
    assert [path.name for path in job.download(tmp_path)] == ["output.tar.gz"]


def test_a_job_submitted_by_a_job_is_independent(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").touch()
    job = run(
        """
        import os, pathlib
        from cloudtrain import Estimator
        pathlib.Path("inner.py").write_text(
            "import os; base = os.environ['SAGEMAKER_BASE_DIR']; "
            "print(os.environ['SAGEMAKER_JOB_NAME'], os.environ.get('WORLD_SIZE'), os.listdir(base + '/input/data'))"
        )
        if os.environ["RANK"] == "0":
            inner = Estimator("inner.py").fit(job_name="inner", logs=False)
            print(inner.logs(), end="")
        """,
        {"train": (tmp_path / "data").as_uri()},
        distribution=TWO_RANKS,
        hang_timeout=50,
    )
    assert job.status == JobStatus.COMPLETED, job.failure
    assert job.logs() == "[rank 0] [rank 0] inner None []\n"


def test_processes_of_a_script_end_with_its_supervisor(run: Run) -> None:
    job = run(
        'python -c "import time; print(1, flush=True); time.sleep(600)"; true', name="run.sh", wait=False
    )
    wait_until(lambda: "1" in job.logs(), "the child")
    pid = folder(job).read_record().pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not live_processes(job), "the end of the child")
    assert job.status == JobStatus.FAILED


def test_a_runtime_that_receives_sigterm_is_interrupted(run: Run) -> None:
    never_again = {"max_preemptions": 0}
    script = "import time; print('on', flush=True); time.sleep(600)"
    job = run(script, wait=False, platform_options=never_again)
    wait_until(lambda: "on" in job.logs() and events(job, "host"), "the rank and the record of its host")
    [host] = events(job, "host")
    os.kill(host["pid"], signal.SIGTERM)
    wait_for_end(job)
    assert (job.status, job.describe().exit_code) == (JobStatus.INTERRUPTED, 143)


def test_a_damaged_job_folder_harms_no_other(run: Run) -> None:
    damaged, other = run("print(1)"), run("print(2)")
    (folder(damaged).path / "state.json").write_text("")
    assert damaged.status == JobStatus.FAILED
    assert damaged.failure
    assert "state.json is damaged" in damaged.failure.message
    assert {job.name for job in LocalPlatform().list()} == {damaged.name, other.name}


def test_a_python_that_cannot_run_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "python").write_text("no program")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(InvalidJob, match=r"platform_options\.python: .*Exec format error") as caught:
        run("print(1)", platform_options={"python": str(tmp_path / "python")})
    assert "Python 3.9 or newer" in caught.value.hint
    assert list(LocalPlatform().list()) == []


@pytest.mark.parametrize(
    ("document", "content", "words"),
    [
        ("hyperparameters.json", "{", "hyperparameters.json is not JSON"),
        ("hyperparameters.json", "[]", "cannot be read"),
        ("resourceconfig.json", '{"current_host": "x", "hosts": ["y"]}', "'x' is not one of"),
        ("hyperparameters.json", "{}", "names no entry point"),
    ],
)
def test_a_broken_contract_leaves_its_reason(tmp_path: Path, document: str, content: str, words: str) -> None:
    (tmp_path / "input" / "config").mkdir(parents=True)
    (tmp_path / "input" / "config" / document).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "cloudtrain.runtime"],
        env={**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert words in done.stderr
    assert words in (tmp_path / "output" / "failure").read_text()
    report = json.loads((tmp_path / "output" / "failure.json").read_text())
    assert report["failure_class"] == str(FailureClass.PLATFORM)


def test_a_hyperparameter_that_is_nearly_too_long_arrives(run: Run) -> None:
    job = run("import sys; print(len(sys.argv[2]))", hyperparameters={"text": "x" * 120_000})
    assert job.logs() == "[rank 0] 120000\n", job.failure


def test_the_script_receives_the_instance_groups(run: Run) -> None:
    groups = [
        {"instance_group_name": name, "instance_type": f"ml.{name}", "instance_count": count}
        for name, count in (("a", 1), ("b", 2))
    ]
    names = ("SM_CURRENT_HOST", "SM_CURRENT_INSTANCE_GROUP", "SM_CURRENT_INSTANCE_TYPE", "SM_IS_HETERO")
    job = run(
        f"import os; print(*(os.environ[name] for name in {(*names, 'SM_CURRENT_INSTANCE_GROUP_HOSTS')}))",
        instance_groups=groups,
        platform="local",
    )
    assert sorted(job.logs().splitlines()) == [
        '[rank 0] algo-1 a ml.a true ["algo-1"]',
        '[rank 1] algo-2 b ml.b true ["algo-2","algo-3"]',
        '[rank 2] algo-3 b ml.b true ["algo-2","algo-3"]',
    ]


@pytest.mark.parametrize("end", ["", "raise ValueError('x')"])
def test_daemons_of_a_script_end_with_the_job(run: Run, end: str) -> None:
    job = run(DAEMONS + end)
    assert job.status == (JobStatus.FAILED if end else JobStatus.COMPLETED)
    wait_until(lambda: not live_processes(job), "the end of the daemons")


def test_a_job_whose_folder_is_removed_ends(run: Run) -> None:
    job = run("import time; print('on', flush=True); time.sleep(600)", wait=False)
    wait_until(lambda: "on" in job.logs(), "the rank")
    pid = folder(job).read_record().pid
    while folder(job).path.exists():  # the supervisor may write into it meanwhile
        shutil.rmtree(folder(job).path, ignore_errors=True)
    with pytest.raises(JobNotFound):
        job.wait(60)
    assert pid
    wait_until(lambda: not process_lives(pid), "the end of the supervisor")
    assert not folder(job).path.exists()
