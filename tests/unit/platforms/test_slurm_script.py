"""The batch script of a job on Slurm: its directives, its lines, and the flags that it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.packaging import pack_runtime
from cloudtrain.platforms.slurm import SlurmPlatform
from cloudtrain.platforms.slurm.directives import PROTECTED
from cloudtrain.spec import Source, TrainingJob
from cloudtrain.storage import state_home

JOB = f"""#!{sys.executable}
import os, signal, sys, time
def end(number, frame):
    os.write(1, b"noticed\\n")  # print may be interrupted, and be busy
    sys.exit(7)
signal.signal(signal.SIGUSR1, end)
print("begins", flush=True)
time.sleep(600)
"""


def script(fields: dict[str, Any] | None = None, **options: Any) -> str:
    """The script of a job with these fields and options of its platform."""
    described = {
        "entry_point": "train.py",
        "job_name": "a-job",
        "platform_options": options,
        **(fields or {}),
    }
    platform = SlurmPlatform()
    job = platform.resolve(TrainingJob.from_dict(described))
    request = platform.render(job)
    assert request.shown == request.body["script"].rstrip()
    assert request.body.get("max_run") == described.get("max_run"), (
        "without it, the limit of the partition holds"
    )
    return request.shown


def flags(text: str) -> dict[str, str | None]:
    """The directives of a script, by flag."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        if line.startswith("#SBATCH --"):
            flag, equals, value = line.removeprefix("#SBATCH --").partition("=")
            found[flag] = value if equals else None
    return found


def test_the_script_of_a_plain_job(tmp_path: Path) -> None:
    text = script({"instance_count": 2}, folder=str(tmp_path))
    *lines, last = text.splitlines()
    assert lines[:9] == [
        "#!/bin/bash",
        "# The job a-job of cloudtrain. To submit it again by hand: sbatch job.sh",
        "#SBATCH --job-name=a-job",
        "# what Slurm and this script print; the output of the ranks is in job.log, next to it",
        f"#SBATCH --output={tmp_path}/jobs/slurm/a-job/supervisor.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --nodes=2",
        "# one runtime on each node, which starts the ranks",
        "#SBATCH --ntasks-per-node=1",
    ]
    assert last.startswith(f"exec python3 {tmp_path}/runtime/")
    assert last.endswith(f"/cloudtrain.pyz cloudtrain.runtime.slurm.step {tmp_path}/jobs/slurm/a-job")


@pytest.mark.parametrize(
    ("python", "word"),
    [
        ("/opt/my python/bin/python", "'/opt/my python/bin/python'"),
        ("~/venv/bin/python", '"${HOME}"/venv/bin/python'),
        ("$SCRATCH/venv/bin/python", '"${SCRATCH}"/venv/bin/python'),
        ("$(touch /x)", "'$(touch /x)'"),
    ],
)
def test_a_node_expands_the_path_of_its_python(python: str, word: str) -> None:
    assert script(python=python).splitlines()[-1].startswith(f"exec {word} /")


def test_no_memory_and_no_time_by_default() -> None:
    assert not {"mem", "time", "exclusive", "gres"} & set(flags(script()))


def test_each_rank_has_a_cpu() -> None:
    eight = {"distribution": {"processes": {"processes_per_host": 8}}}
    assert flags(script(eight))["mincpus"] == "8"
    assert flags(script(gpus=4))["mincpus"] == "4"
    assert flags(script(gres="gpu:a100:2"))["mincpus"] == "2"
    assert flags(script(eight, sbatch={"mincpus": 16}))["mincpus"] == "16"
    assert "mincpus" not in flags(script(eight, cpus_per_task=4))
    assert "mincpus" not in flags(script())


def test_every_option_is_a_directive() -> None:
    options: dict[str, Any] = {
        "clusters": ["a", "b"], "partition": "gpu,debug", "account": "ml", "qos": "high", "reservation": "r",
        "constraint": "a100&ib", "nodelist": "n[1-4]", "exclude": ["n2", "n3"], "exclusive": True,
        "comment": "two parts", "wckey": "w", "nice": -5, "licenses": ["x:2"], "switches": "1@00:10", "segment": 4,
        "begin": "now+1hour", "deadline": "2026-12-31", "mail_user": "a@b.c", "mail_type": ["END", "FAIL"],
        "gpus": 8, "gpu_type": "a100", "cpus_per_task": 16, "mem": "64G", "tmp": "10G",
    }  # fmt: skip
    found = flags(script(**options))
    expected = {
        "clusters": "a,b", "partition": "gpu,debug", "account": "ml", "qos": "high", "reservation": "r",
        "constraint": "'a100&ib'", "nodelist": "'n[1-4]'", "exclude": "n2,n3", "exclusive": None,
        "comment": "'two parts'", "wckey": "w", "nice": "-5", "licenses": "x:2", "switches": "1@00:10", "segment": "4",
        "begin": "now+1hour", "deadline": "2026-12-31", "mail-user": "a@b.c", "mail-type": "END,FAIL",
        "gres": "gpu:a100:8", "cpus-per-task": "16", "mem": "64G", "tmp": "10G",
    }  # fmt: skip
    assert {name: value for name, value in found.items() if name in expected} == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gpus": 2}, {"gres": "gpu:2"}),
        ({"gpus": 2, "gpu_style": "gpus-per-node"}, {"gpus-per-node": "2"}),
        ({"gpus": 2, "gpu_type": "h100", "gpu_style": "gpus-per-node"}, {"gpus-per-node": "h100:2"}),
        ({"gpus": 2, "gpu_style": "gpus-per-node", "gres": ["gpu:h100:1", "shard:4"]}, {"gres": "gpu:h100:1,shard:4"}),
        ({"gpus": 2, "sbatch": {"gres": "gpu:1"}}, {"gres": "gpu:1"}),
    ],
)  # fmt: skip
def test_gpus_as_the_cluster_wants_them(options: dict[str, Any], expected: dict[str, str]) -> None:
    found = flags(script(**options))
    assert {name: found[name] for name in ("gres", "gpus-per-node") if name in found} == expected


def test_the_time_limit_includes_the_end() -> None:
    text = script({"max_run": 3600, "stop_grace": 30})
    assert flags(text)["time"] == "64"  # in whole minutes
    assert "# max_run of 3600 s, and 210 s for the end" in text
    assert flags(script({"max_run": 3600}, sbatch={"time": "2-00:00:00"}))["time"] == "2-00:00:00"


def test_any_other_flag_of_sbatch() -> None:
    found = flags(script(sbatch={"gpu-bind": "none", "--power": "level", "contiguous": True, "hold": False}))
    assert (found["gpu-bind"], found["power"]) == ("none", "level")
    assert found["contiguous"] is None and "hold" not in found


@pytest.mark.parametrize("flag", [*PROTECTED, "N", "-o", "ntasks_per_node", "outp", "--job-n"])
def test_flags_that_cloudtrain_sets_are_refused_with_the_reason(flag: str) -> None:
    with pytest.raises(InvalidJob, match="cloudtrain sets this flag itself") as caught:
        script(sbatch={flag: "1"})
    assert caught.value.hint.startswith("Leave it out: ")


@pytest.mark.parametrize(
    "options",
    [
        {"folder": "/a\\b"},
        {"sbatch": {"p": "main"}},
        {"account": "ml\n#SBATCH --uid=0"},
        {"sbatch": {"x": "a\nb"}},
        {"sbatch": {"a b": 1}},
    ],
)
def test_options_that_slurm_would_misread_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match="platform_options"):
        script(**options)


@pytest.mark.parametrize("flag", ["--output=/x", "--outp=/x", "-n1", "-N", "--export=NONE", "hostname"])
def test_flags_of_srun_that_would_hang_the_job_are_refused(flag: str) -> None:
    with pytest.raises(InvalidJob, match=r"platform_options\.srun: .* cloudtrain sets this itself"):
        script(srun=[flag])


def test_other_flags_of_srun_are_taken() -> None:
    script(srun=["--mem-bind=local", "--network", "sn_all", "-v", "--exclusive"])


def test_slurm_reads_a_backslash_as_it_was_given() -> None:
    assert r"""#SBATCH --comment='a\\b '"'"'c'"'"''""" in script(comment="a\\b 'c'")


def test_modules_prologue_and_python() -> None:
    lines = script(
        modules=["cuda/12.4", "openmpi/5"],
        prologue=["source env.sh", "ulimit -l unlimited"],
        python="/opt/python",
    ).splitlines()
    assert lines[-6:-3] == ["module load cuda/12.4 openmpi/5", "source env.sh", "ulimit -l unlimited"]
    assert lines[-1].startswith("exec /opt/python /")


def test_the_epilogue_sees_the_exit_code_and_signals_reach_the_job(tmp_path: Path) -> None:
    text = script(python=str(tmp_path / "job"), epilogue=["echo ended with $status"])
    job = tmp_path / "job"
    job.write_text(JOB)
    job.chmod(0o755)
    runtime = pack_runtime(state_home() / "runtime").path
    (tmp_path / "job.sh").write_text(text)
    with subprocess.Popen(["bash", tmp_path / "job.sh"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begins\n"
        process.send_signal(10)
        assert process.stdout.read() == "noticed\nended with 7\n"
    assert process.returncode == 7
    runtime.write_bytes(b"evil")
    done = subprocess.run(["bash", tmp_path / "job.sh"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"{runtime} is missing or was changed: remove it, and submit the job again\n"


def test_the_source_goes_to_the_cluster_and_stays_where_it_is_in_s3() -> None:
    platform = SlurmPlatform()
    for uri, sha256, expected in (
        ("file:///here/ab/sourcedir.tar.gz", "ab", "/sources/ab/sourcedir.tar.gz"),
        ("s3://bucket/ab/sourcedir.tar.gz", "ab", "s3://bucket/ab/sourcedir.tar.gz"),
    ):
        job = TrainingJob(entry_point="train.py", job_name="a-job", source=Source(uri, sha256, ""))
        request = platform.render(platform.resolve(job))
        assert request.body["hyperparameters"]["sagemaker_submit_directory"].strip('"').endswith(expected)


@pytest.mark.parametrize("field", [{"entry_point": None}, {"container_entry_point": ["run"]}])
def test_a_job_that_slurm_cannot_run(field: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match=next(iter(field))):
        script(field)


def test_a_folder_with_a_variable_that_is_not_set() -> None:
    with pytest.raises(InvalidJob, match="the variable NOWHERE is not set here"):
        script(folder="$NOWHERE/cloudtrain")
