"""A successful job, from its start to its outputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from file_contents import file_contents
from local_jobs import TWO_RANKS, Run, folder, live_processes, wait_for_end, wait_until

from cloudtrain import Estimator, InvalidJob, Job, JobStatus
from cloudtrain.errors import JobExists, JobNotFound, NotFound
from cloudtrain.index import list_jobs
from cloudtrain.platforms import get_platform
from cloudtrain.platforms.local import LocalPlatform


def test_two_hosts_with_two_ranks_each(run: Run) -> None:
    job = run(
        """
        import os
        print(*(os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CURRENT_HOST")))
        """,
        instance_count=2,
        distribution=TWO_RANKS,
    )
    assert job.status == JobStatus.COMPLETED
    assert sorted(job.logs().splitlines()) == [
        "[rank 0] 0 0 4 2 algo-1",
        "[rank 1] 1 1 4 2 algo-1",
        "[rank 2] 2 0 4 2 algo-2",
        "[rank 3] 3 1 4 2 algo-2",
    ]
    for host in ("algo-1", "algo-2"):
        assert folder(job).host(host).success.exists()
        assert not folder(job).host(host).failure.exists()
    assert live_processes(job) == []


def test_hosts_share_the_gpus_of_the_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many ranks on each host as it has GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    names = "CURRENT_HOST", "SM_NUM_GPUS", "CUDA_VISIBLE_DEVICES"
    script = f"import os; print(*(os.environ[name] for name in {names}))"
    job = run(script, instance_count=2, distribution={"processes": {}})
    assert sorted(job.logs().splitlines()) == [
        *(f"[rank {rank}] algo-1 2 0,1" for rank in (0, 1)),
        *(f"[rank {rank}] algo-2 2 2,3" for rank in (2, 3)),
    ]


def test_hyperparameters_reach_the_command_line_exactly(run: Run) -> None:
    values = {
        "e": 5, "lr": 1e-3, "name": "a b", "quote": "it's \"q\"; $(touch x)", "flag": True, "none": None,
        "version": "1.10", "opt": {"k": [1, 2]}, "uni": "é", "empty": "", "b": "true", "neg": -1,
    }  # fmt: skip
    job = run("import json, sys; print(json.dumps(sys.argv[1:]))", hyperparameters=values)
    printed = job.logs().partition("] ")[2]
    assert json.loads(printed) == [
        "-b", "true", "-e", "5", "--empty", "", "--flag", "True", "--lr", "0.001", "--name", "a b", "--neg", "-1",
        "--none", "", "--opt", "k=[1, 2]", "--quote", "it's \"q\"; $(touch x)",
        "--uni", "é", "--version", "1.10",
    ]  # fmt: skip


def test_the_job_outlives_its_client(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)\nprint('still here')"
    )
    client = "from cloudtrain import Estimator; print(Estimator('train.py').fit(wait=False).name)"
    name = subprocess.run(
        [sys.executable, "-c", client], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.strip()
    job = Job.attach(name)
    assert job.status in (JobStatus.PENDING, JobStatus.RUNNING)
    (tmp_path / "go").touch()
    assert list(job.follow()) == ["[rank 0] still here"]
    assert job.wait().status == JobStatus.COMPLETED


def test_two_concurrent_jobs_do_not_interfere(run: Run) -> None:
    script = """
        import os, time
        time.sleep(0.5)
        print(os.environ["MASTER_PORT"], os.environ["SM_MODEL_DIR"])
    """
    jobs = [run(script, wait=False, distribution=TWO_RANKS, instance_count=2) for _ in range(2)]
    printed = [{line.partition("] ")[2] for line in job.wait(120).logs().splitlines()} for job in jobs]
    ports = [{line.split()[0] for line in lines} for lines in printed]
    assert [len(found) for found in ports] == [1, 1]
    assert ports[0] != ports[1]
    assert not printed[0] & printed[1]


def test_the_index_and_the_platform_have_the_job(run: Run) -> None:
    job = run("print('x')", base_job_name="known")
    assert job.name.startswith("known-")
    assert [entry.name for entry in list_jobs()] == [job.name]
    assert [description.name for description in get_platform("local").list()] == [job.name]
    assert Job.attach(job.name).status == JobStatus.COMPLETED


def test_a_name_can_be_used_once(run: Run) -> None:
    run("print('x')", job_name="mine")
    with pytest.raises(JobExists, match="already a local job mine") as caught:
        run("print('x')", job_name="mine")
    assert "--name" in caught.value.hint


@pytest.mark.parametrize("name", ["nosuch", "../../etc", ""])
def test_an_unknown_job(name: str) -> None:
    with pytest.raises(JobNotFound):
        Job.attach(name)
    with pytest.raises(JobNotFound):
        get_platform("local").describe(name)


def test_metrics_are_found_in_the_output(run: Run) -> None:
    job = run(
        "for step in range(3): print(f'step {step} loss={1 / (step + 1):.3f}')",
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    )
    assert job.metrics == {"loss": 0.333}


def test_a_stopped_job_names_the_worker_that_its_script_waits_for(run: Run) -> None:
    job = run(
        """
        import multiprocessing

        def work(results):
            raise AttributeError("module 'gym' has no attribute 'wrappers'")

        multiprocessing.set_start_method("fork")
        results = multiprocessing.Queue()
        multiprocessing.Process(target=work, args=(results,)).start()
        results.get()
        """,
        wait=False,
    )
    wait_until(lambda: "has no attribute 'wrappers'" in job.logs(), "the end of the worker")
    job.stop()
    wait_for_end(job)
    assert job.status is JobStatus.STOPPED
    assert "a process that the script started ended with AttributeError: module 'gym'" in job.logs()


def test_the_time_limit_stops_the_job(run: Run) -> None:
    job = run("import time; time.sleep(600)", max_run=1)
    description = job.describe()
    assert (description.status, description.reason) == (JobStatus.STOPPED, "max_run of 1 s is over")


def test_download_fetches_the_outputs(run: Run, tmp_path: Path) -> None:
    job = run("import os; open(os.environ['SM_MODEL_DIR'] + '/weights', 'w').write('w')")
    [archive] = job.download(tmp_path / "got")
    listing = subprocess.run(["tar", "tzf", archive], capture_output=True, text=True, check=True).stdout
    assert listing.split() == ["weights"]
    empty = run("print('nothing')")
    with pytest.raises(NotFound, match="has no model or other outputs") as caught:
        empty.download(tmp_path)
    assert str(caught.value.hint).endswith(f"Its end: cloudtrain describe {empty.name}")
    failed = run("raise SystemExit(1)")
    with pytest.raises(NotFound, match=f"See why it failed: cloudtrain describe {failed.name}"):
        failed.download(tmp_path)


def test_a_dry_run_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('x')")
    submission = Estimator(
        str(tmp_path / "train.py"), environment={"HF_TOKEN": "hf_sesame", "A": "1"}, instance_count=2
    ).prepare(job_name="dry")
    assert submission.request.body["host_count"] == 2
    assert submission.request.body["environment"]["HF_TOKEN"] == "***"
    assert "sesame" not in submission.request.to_json() + repr(submission.request)
    assert list(get_platform("local").list()) == []


def test_secrets_reach_the_script_and_no_file(run: Run) -> None:
    job = run(
        "import os; print(len(os.environ['HF_TOKEN']), os.environ['A'])",
        environment={"HF_TOKEN": "hf_sesame", "A": "1"},
    )
    assert job.logs() == "[rank 0] 9 1\n"
    contents = dict(file_contents(folder(job).path))
    assert contents
    assert [path for path, data in contents.items() if b"sesame" in data] == []


def test_contradictory_or_unknown_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"no argument 'instance_cout'\n  Did you mean 'instance_count'"):
        Estimator("train.py", instance_cout=2)
    (tmp_path / "train.py").write_text("")
    with pytest.raises(InvalidJob, match="cannot launch ranks with 'pytorchddp'"):
        Estimator(str(tmp_path / "train.py"), distribution={"pytorchddp": {"enabled": True}}).prepare()


def test_a_signal_from_outside_interrupts(run: Run) -> None:
    job = run("import time; print('on'); time.sleep(600)", wait=False)
    wait_until(lambda: "on" in job.logs(), "the first line")
    pid = folder(job).read_record().pid
    assert pid
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: job.status.is_final, "the end")
    description = job.describe()
    assert (description.status, description.exit_code) == (JobStatus.INTERRUPTED, 143)
    assert live_processes(job) == []


def test_a_folder_of_the_host_is_the_model_dir(run: Run) -> None:
    script = (
        "import os, sys; print(sys.argv[1:] == ['--model_dir', os.environ['SM_MODEL_DIR']], *sys.argv[1:])"
    )
    job = run(script, framework="tensorflow")
    assert job.logs().startswith("[rank 0] True --model_dir"), job.logs()


def test_a_retry_gets_the_same_arguments(run: Run) -> None:
    line = ["--x", "1", "--x", "2", "", "a\nb", "caf\udce9"]
    script = "import sys; print(ascii(sys.argv[1:])); sys.exit(1)"
    job = run(script, arguments=line, max_retry_attempts=1)
    assert job.logs().splitlines().count(f"[rank 0] {line!a}") == 2, job.logs()
    assert LocalPlatform().request(job.name).body["arguments"] == line
    assert job.describe().details["arguments"].startswith("--x 1 --x 2 '' 'a")
