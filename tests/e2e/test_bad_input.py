"""Bad input from users gives one clear message and no traceback, and leaves nothing behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from command import Result, cloudtrain

from cloudtrain.index import list_jobs
from cloudtrain.platforms.local import LocalPlatform


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('ran')")
    (tmp_path / "train.py").write_text("print('ran')")
    (tmp_path / "other.py").write_text("print('ran')")
    (tmp_path / "notes.ipynb").write_text("{}")
    (tmp_path / "README.md").write_text("Hello.")
    (tmp_path / "weights.pt").write_bytes(b"PK")
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "train.py").write_text("")
    (tmp_path / "secret" / ".env").write_text("TOKEN=sesame-open")
    return tmp_path


def is_one_error(done: Result, *phrases: str) -> None:
    """Assert that the output is one message with all phrases, without a traceback, and the status is 1 or 2."""
    assert done.code in (1, 2)
    assert done.out == ""
    assert "Traceback" not in done.err
    assert "Error:" in done.err
    for phrase in phrases:
        assert phrase in done.err, done.err


ARGUMENTS = {
    "missing-file": (["nosuch.py"], ["nosuch.py"]),
    "missing-job-file": (["nosuch.yaml"], ["there is no file nosuch.yaml"]),
    "missing-in-source": (["nosuch.py", "--source-dir", "src"], ["nosuch.py", "src"]),
    "outside-source": (["../other.py", "--source-dir", "src"], ["outside source_dir"]),
    "syntax": (["broken.py"], ["broken.py:2", "def f(:"]),
    "no-source-dir": (["train.py", "--source-dir", "nosuch"], ["nosuch"]),
    "secret": (["train.py", "--source-dir", "secret"], [".env", ".cloudtrainignore"]),
    "zero-hosts": (["train.py", "--instance-count", "0"], ["expected a whole number of at least 1, got 0"]),
    "no-number": (["train.py", "--instance-count", "two"], ["'two' is not a valid integer"]),
    "platform": (["train.py", "--platform", "locl"], ["unknown platform 'locl'", "Did you mean 'local'?"]),
    "name": (["train.py", "--name", "my_job"], ["my_job", "my-job"]),
    "long-name": (["train.py", "--name", "x" * 64], ["64 characters, 63 are allowed"]),
    "set": (["train.py", "--set", "instance_cout=2"], ["unknown", "instance_cout", "Did you mean 'instance_count'?"]),
    "set-form": (["train.py", "--set", "x"], ["does not have the form FIELD=VALUE"]),
    "nan": (["train.py", "--set", "hyperparameters.lr=.nan"], ["hyperparameter 'lr' cannot be written as JSON"]),
    "distribution": (["train.py", "--set", "distribution.nosuch={}"], ["unknown field 'distribution.nosuch'"]),
    "launcher": (
        ["train.py", "--set", "distribution.pytorchddp={}"],
        ["cannot launch ranks with 'pytorchddp'", "torch_distributed"],
    ),
    "arguments": (["train.py", "--set", "arguments=fit"], ["arguments: expected a list of strings", '["fit"]']),
    "argument-channel": (["train.py", "--", "{channel.x}"], ["the job has no channel 'x'", "It has no inputs"]),
    "script-option": (["train.py", "--epochs", "5"], ["No such option", "train.py -- --epochs 5"]),
    "input-form": (["train.py", "--input", "train"], ["CHANNEL=URI"]),
    "input-missing": (["train.py", "--input", "train=file:///nosuch"], ["channel 'train': there is nothing at"]),
    "input-empty": (
        ["train.py", "--input", "train=empty"],
        ["channel 'train': there is nothing at", "Check the path, or put the data there first."],
    ),
    "input-path": (["train.py", "--input", "train=nosuch"], ["inputs.train", "not an s3://, gs:// or file:// URI"]),
    "option": (["train.py", "--instance-cout", "2"], ["No such option", "--instance-count"]),
    "platform-option": (["train.py", "--set", "platform_options.x=1"], ["unknown field 'platform_options.x'"]),
    "platform-port": (["train.py", "--set", "platform_options.master_port=a"], ["master_port: expected a whole"]),
    "notebook": (["notes.ipynb"], ["'notes.ipynb' cannot be run: it is a notebook", "nbconvert"]),
    "text": (["README.md"], ["'README.md' cannot be run: it is a text", "Name a Python file"]),
    "data": (["weights.pt"], ["'weights.pt' cannot be run: it is neither a Python file nor a program"]),
    "platform-python": (["train.py", "--set", "platform_options.python=/x"], ["there is no program '/x'"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments(here: Path, case: str) -> None:
    arguments, phrases = ARGUMENTS[case]
    done = cloudtrain("submit", *arguments, cwd=here)
    is_one_error(done, *phrases)
    assert "sesame" not in done.err
    assert [*LocalPlatform().list(), *list_jobs()] == []


FILES = {
    "duplicate": ("entry_point: a\nentry_point: b", ["job.yaml, line 2, column 1", "duplicate key"]),
    "tab": (
        "entry_point: train.py\nhyperparameters:\n\tlr: 1",
        ["job.yaml, line 3, column 1", "YAML does not allow tabs"],
    ),
    "unknown": ("entry_pont: train.py", ["unknown", "entry_pont", "Did you mean 'entry_point'?"]),
    "type": (
        "entry_point: train.py\ninstance_count: many",
        ["instance_count: expected a whole number"],
    ),
    "list": ("- entry_point: train.py", ["not a mapping of fields"]),
    "empty": ("", ["has no fields"]),
    "unclosed": ("entry_point: [", ["job.yaml, line"]),
    "nothing": ("instance_count: 1", ["entry_point: the local platform needs a script"]),
}


@pytest.mark.parametrize("case", FILES)
def test_job_files(here: Path, case: str) -> None:
    text, phrases = FILES[case]
    (here / "job.yaml").write_text(text)
    is_one_error(cloudtrain("submit", "job.yaml", cwd=here), *phrases)
    assert [*LocalPlatform().list(), *list_jobs()] == []


@pytest.mark.parametrize("command", ["describe", "logs", "wait", "stop", "download"])
def test_jobs_that_do_not_exist(here: Path, command: str) -> None:
    is_one_error(
        cloudtrain(command, "nosuch", cwd=here),
        "there is no job nosuch",
        "cloudtrain list",
        "--platform NAME",
    )
    failed = cloudtrain(command, "nosuch", "--json", cwd=here)
    assert failed.json["error"]["type"] == "JobNotFound"


def test_a_port_that_is_in_use(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (here / "meets.py").write_text(
            "import torch.distributed as d\nd.init_process_group('gloo', init_method='env://')"
        )
        done = cloudtrain(
            "submit", "meets.py", "--torchrun", "--processes-per-host", "2",
            "--set", f"platform_options.master_port={port}",
            cwd=here,
        )  # fmt: skip
    assert done.code == 1
    assert "Failed" in done.err
    assert str(port) in done.err


def test_s3_that_is_missing_forbidden_or_unreachable(
    here: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"train=s3://{s3}/nosuch"
    is_one_error(
        cloudtrain("submit", "train.py", "--input", uri, cwd=here), f"there is nothing at s3://{s3}/nosuch"
    )
    no_bucket = cloudtrain("submit", "train.py", "--output-path", "s3://no-such-bucket-x/out", cwd=here)
    is_one_error(no_bucket, "no-such-bucket-x")
    code = cloudtrain("submit", "train.py", "--set", "code_location=s3://no-such-bucket-x/code", cwd=here)
    is_one_error(code, "no-such-bucket-x")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-sesame")
        denied = cloudtrain("submit", "train.py", "--input", uri, cwd=here)
        is_one_error(denied, s3)
        assert "sesame" not in denied.err
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    is_one_error(cloudtrain("submit", "train.py", "--input", uri, cwd=here), "127.0.0.1:9")
    assert [*LocalPlatform().list(), *list_jobs()] == []


def test_a_state_folder_that_cannot_be_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", "/proc/nosuch")
    is_one_error(cloudtrain("submit", "train.py", cwd=here), "/proc/nosuch", "CLOUDTRAIN_HOME")


STEP = ("--steps", "100", "--step-seconds", "0.4")
PLANS = {
    "deadline-in-the-past": (["train.py", *STEP, "--deadline=-1h"], ["--deadline -1h: it is in the past"]),
    "nan": (
        ["train.py", "--steps", "100", "--step-seconds", "nan"],
        ["--step-seconds nan: expected a finite"],
    ),
    "budget-without-price": (["train.py", *STEP, "--budget", "5"], ["no price is known"]),
    "no-step-time": (["train.py", "--steps", "100"], ["the time of a step is not known", "--from-job"]),
    "no-gpus": (["train.py", *STEP, "--gpus", "0"], ["--gpus 0: expected numbers from 1 to 1,000,000"]),
    "no-such-job": (["train.py", "--from-job", "nosuch"], ["there is no job nosuch"]),
    "no-such-type": (["train.py", *STEP, "--instance-type", "ml.p9.large"], ["the hardware of ml.p9.large"]),
}


@pytest.mark.parametrize(("arguments", "phrases"), PLANS.values(), ids=PLANS)
def test_plans(arguments: list[str], phrases: list[str], here: Path) -> None:
    is_one_error(cloudtrain("plan", *arguments, cwd=here), *phrases)


def test_offers_of_an_unknown_gpu_and_of_none(here: Path) -> None:
    is_one_error(cloudtrain("offers", "--gpu", "H10", cwd=here), "unknown GPU 'H10'", "Did you mean 'H100'?")
    is_one_error(cloudtrain("offers", "--count", "0", cwd=here), "--count 0: expected a number from 1 on")
    is_one_error(
        cloudtrain("offers", "--platform", "slrum", cwd=here),
        "unknown platform 'slrum'",
        "Did you mean 'slurm'?",
    )


def test_a_job_is_not_submitted_with_a_plan_for_other_hosts(here: Path) -> None:
    planned = cloudtrain("plan", "train.py", *STEP, "--gpus", "1", "--save", "plan.json", cwd=here)
    assert planned.code == 0, planned.err
    done = cloudtrain("submit", "train.py", "--instance-count", "2", "--plan", "plan.json", cwd=here)
    is_one_error(done, "the plan has no option for 2 hosts", "It has: 1 host")
    is_one_error(cloudtrain("submit", "train.py", "--plan", "train.py", cwd=here), "train.py is not a plan")
    assert not [*list_jobs()]
