"""The description of a job: valid and invalid fields, and the messages for invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from cloudtrain import FileSystemInput, TrainingInput, TrainingJob
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import base_name

FULL: dict[str, Any] = {
    "entry_point": "train.py",
    "source_dir": "src",
    "hyperparameters": {"epochs": 5, "lr": 0.1, "name": "a", "opt": {"k": [1, None]}},
    "environment": {"A": "1"},
    "inputs": {"train": {"s3_data": "s3://b/train", "distribution": "ShardedByS3Key"}},
    "distribution": {"torch_distributed": {"processes_per_host": 2}},
    "instance_count": 2,
    "use_spot_instances": True,
    "max_run": 60,
    "max_wait": 120,
    "hang_timeout": 30.0,
    "checkpoint_s3_uri": "s3://b/ckpt",
    "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    "tags": [{"Key": "team", "Value": "x"}],
    "instance_groups": [],
}


def test_round_trips() -> None:
    job = TrainingJob.from_dict(FULL)
    assert TrainingJob.from_dict(job.to_dict()) == job
    assert TrainingJob.from_json(job.to_json()) == job
    assert TrainingJob.from_dict({}).to_dict() == {}


def test_a_training_job_is_frozen() -> None:
    with pytest.raises(AttributeError):
        TrainingJob.from_dict(FULL).instance_count = 3  # type: ignore[misc]


def test_short_forms() -> None:
    job = TrainingJob.from_dict(
        {"inputs": {"train": "s3://b/x"}, "tags": {"a": 1}, "environment": {"N": 4, "F": 0.5}, "role": None}
    )
    assert job.inputs == {"train": TrainingInput("s3://b/x")}
    assert job.tags == [{"Key": "a", "Value": "1"}]
    assert job.environment == {"N": "4", "F": "0.5"}


def test_hosts_are_counted_over_groups() -> None:
    group = {"instance_type": "ml.x", "instance_count": 2}
    groups = [{"instance_group_name": name, **group} for name in "ab"]
    assert TrainingJob.from_dict({"instance_groups": groups}).host_count == 4


def test_a_channel_is_in_s3_or_on_a_file_system() -> None:
    mounted = {"file_system_id": "fs-1", "file_system_type": "EFS", "directory_path": "/d"}
    job = TrainingJob.from_dict({"inputs": {"a": "s3://b/x", "b": mounted}})
    assert job.inputs == {"a": TrainingInput("s3://b/x"), "b": FileSystemInput("fs-1", "EFS", "/d")}
    assert TrainingJob.from_json(job.to_json()) == job


def test_the_model_to_start_from_is_the_last_channel() -> None:
    job = TrainingJob.from_dict({"inputs": {"a": "s3://b/x"}, "model_uri": "s3://b/m"})
    assert list(job.channels) == ["a", "model"]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"base_job_name": "mine", "image_uri": "x/y:1"}, "mine"),
        ({"image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/my-image:1.0"}, "my-image"),
        ({"image_uri": "registry:5000/my@sha256:abc"}, "my"),
        ({"framework": "pytorch"}, "pytorch-training"),
        ({"framework": "huggingface", "tensorflow_version": "2.6"}, "huggingface-tensorflow-training"),
        ({"entry_point": "train.py"}, None),
    ],
)
def test_the_start_of_a_generated_name(fields: dict[str, Any], name: str | None) -> None:
    assert base_name(TrainingJob.from_dict(fields)) == name


REFUSED = {
    "file-system": (
        {"inputs": {"t": {"file_system_id": "fs-1", "file_system_type": "NFS", "directory_path": "/"}}},
        r"^inputs.t.file_system_type: expected EFS or FSxLustre, got 'NFS'$",
    ),
    "framework": (
        {"framework": "jax"},
        r"^framework: expected huggingface, mxnet, pytorch, sklearn, tensorflow or xgboost, got 'jax'$",
    ),
    "runtime": ({"runtime": "mine"}, r"^runtime: expected cloudtrain or toolkit, got 'mine'$"),
    "agent-without-command": (
        {"distribution": {"agent": {}}},
        r"agent: set either preset or command\n  preset is one of accelerate, deepspeed, ray; command is",
    ),
    "agent-twice": (
        {"distribution": {"agent": {"preset": "ray", "command": "x"}}},
        r"agent: set either preset or command",
    ),
    "agent-options": (
        {"distribution": {"agent": {"command": "x", "options": "--y"}}},
        r"agent.options: they are added to a preset",
    ),
    "agent-preset": (
        {"distribution": {"agent": {"preset": "torchx"}}},
        r"agent.preset: expected accelerate, deepspeed or ray, got 'torchx'",
    ),
    "agent-placeholder": (
        {"distribution": {"agent": {"command": "x {host_rnk}"}}},
        r"agent.command: there is no placeholder \{host_rnk\}. Did you mean 'host_rank'\?\n  docs/",
    ),
    "agent-quote": (
        {"distribution": {"agent": {"preset": "deepspeed", "options": "'x"}}},
        r"agent.options: No closing quotation",
    ),
    "agent-ranks-of-ray": (
        {"distribution": {"agent": {"preset": "ray", "processes_per_host": 2}}},
        r"agent.processes_per_host: the preset ray runs the script once",
    ),
    "both-libraries": (
        {"distribution": {"smdistributed": {"dataparallel": {}, "modelparallel": {}}}},
        r"smdistributed: dataparallel and modelparallel cannot be combined",
    ),
    "library-and-launcher": (
        {"distribution": {"smdistributed": {"modelparallel": {}}, "horovod": {}}},
        r"horovod and smdistributed are enabled, but a job has only one",
    ),
    "group": ({"distribution": {"mpi": {}, "instance_groups": ["g"]}}, r"there is no instance group 'g'"),
    "model-channel": (
        {"model_uri": "s3://b/m", "inputs": {"model": "s3://b/x"}},
        r"inputs.model: model_uri uses this channel",
    ),
    "dependencies": ({"dependencies": ["lib"]}, r"dependencies: needs an entry_point"),
    "credentials": (
        {"training_repository_credentials_provider_arn": "arn"},
        r"needs training_repository_access_mode",
    ),
    "profiler": ({"disable_profiler": True, "profiler_config": {}}, r"profiler_config: contradicts"),
    "unknown": ({"instance_cout": 2}, r"unknown field 'instance_cout'\n  Did you mean 'instance_count'\?"),
    "git": (
        {"git_config": {"repo": "x"}},
        r"unknown field 'git_config'\n  Only an Estimator in Python has it",
    ),
    "of-other-launchers": ({"nodes": 2}, r"unknown field 'nodes'\n  Did you mean 'instance_count'\?$"),
    "of-the-platform": ({"gpus": 2}, r"unknown field 'gpus'\n  Did you mean 'platform_options'\?$"),
    "of-the-distribution": ({"torchrun": {}}, r"unknown field 'torchrun'\n  Did you mean 'distribution'\?$"),
    "torchrun": ({"distribution": {"torchrun": {}}}, r"Did you mean 'torch_distributed'\?$"),
    "unknown-far": ({"zzz": 2}, r"unknown field 'zzz'\n  Known: .*entry_point"),
    "zero": ({"instance_count": 0}, r"^instance_count: expected a whole number of at least 1, got 0$"),
    "type": (
        {"instance_count": "2"},
        r"^instance_count: expected a whole number of at least 1, got '2'\n  Write the number without quotes.$",
    ),
    "fraction": (
        {"instance_count": 1.5},
        r"^instance_count: expected a whole number of at least 1, got 1.5$",
    ),
    "range": (
        {"stop_grace": "long"},
        r"^stop_grace: expected a number of seconds from 0 to 120, got 'long'\n  Write the seconds as a number",
    ),
    "above": ({"hang_timeout": 0}, r"^hang_timeout: expected a number of seconds above 0, got 0$"),
    "hour": (
        {"max_run": "1 hour"},
        r"^max_run: expected a whole number of seconds from 1 to .*, got '1 hour'\n  Write the seconds: 3600.$",
    ),
    "clock": ({"max_run": "02:00:00"}, r"got '02:00:00'\n  Write the seconds: 7200.$"),
    "unclear-clock": (
        {"max_run": "02:00"},
        r"got '02:00'\n  Write the seconds as a number: 3600 is an hour.$",
    ),
    "processes": (
        {"distribution": {"processes": {"nproc_per_node": 2}}},
        r"^unknown field 'distribution.processes.nproc_per_node'\n  Did you mean 'processes_per_host'\?$",
    ),
    "quoted-seconds": ({"max_run": "3600"}, r"got '3600'\n  Write the number without quotes.$"),
    "boolean": (
        {"timeline": "true"},
        r"^timeline: expected true or false, got 'true'\n  Write true or false without quotes.$",
    ),
    "text": ({"image_uri": ["a"]}, r"^image_uri: expected text, got a list$"),
    "list": (
        {"dependencies": "lib"},
        r"^dependencies: expected a list, got 'lib'\n  Write a list, also for a single value: \[VALUE\].$",
    ),
    "item": ({"dependencies": ["lib", {}]}, r"^dependencies\[1\]: expected text, got a mapping$"),
    "mapping": ({"hyperparameters": "lr=1"}, r"^hyperparameters: expected a mapping, got 'lr=1'$"),
    "kinds": (
        {"debugger_hook_config": 5},
        r"^debugger_hook_config: expected a mapping or true or false, got 5$",
    ),
    "long-text": ({"max_wait": "x" * 99}, r"^max_wait: expected a whole number of .*, got text\n"),
    "key": ({"hyperparameters": {1: 2}}, r"^hyperparameters: the name 1 is not text\n  Put it in quotes"),
    "field-name": ({3: 4}, r"^the name 3 is not text"),
    "required": (
        {"instance_groups": [{"instance_group_name": "g"}]},
        r"^instance_groups\[0\].instance_type: this field is required$",
    ),
    "channel": ({"inputs": {"t": 5}}, r"^inputs.t: expected a URI or a mapping, got 5$"),
    "distribution": (
        {"distribution": {"nosuch": {}}},
        r"unknown field 'distribution.nosuch'\n  Known: agent, horovod, instance_groups, mpi, ",
    ),
    "near-distribution": ({"distribution": {"torch_distribted": {}}}, r"Did you mean 'torch_distributed'\?"),
    "two-distributions": (
        {"distribution": {"mpi": {}, "processes": {}}},
        r"processes and mpi are enabled",
    ),
    "implementation": ({"distribution": {"horovod": {"implementation": "mine"}}}, r"implementation"),
    "open-quote": (
        {"distribution": {"mpi": {"custom_mpi_options": "-x 'A=b"}}},
        r"custom_mpi_options: .*quotation",
    ),
    "option": ({"distribution": {"mpi": {"processes_per_hos": 2}}}, r"Did you mean 'processes_per_host'\?"),
    "no-processes": (
        {"distribution": {"mpi": {"processes_per_host": 0}}},
        r"^distribution.mpi.processes_per_host: expected a whole number of at least 1, got 0$",
    ),
    "channel-field": ({"inputs": {"t": {"s3_dat": "s3://b"}}}, r"Did you mean 's3_data'\?"),
    "channel-name": ({"inputs": {"a b": "s3://b/x"}}, r"inputs: 'a b' is not a valid channel name"),
    "channel-up": ({"inputs": {"..": "s3://b/x"}}, r"'..' is not a valid channel name"),
    "channel-uri": (
        {"inputs": {"t": "/data"}},
        r"inputs.t: '/data' is not .*\n  Did you mean file:///data\?",
    ),
    "uri": ({"output_path": "bucket/x"}, r"output_path: 'bucket/x' is not an s3://, gs:// or file:// URI"),
    "nan": ({"hyperparameters": {"lr": float("nan")}}, r"hyperparameter 'lr' cannot be written as JSON"),
    "object": ({"hyperparameters": {"f": {1, 2}}}, r"hyperparameter 'f' cannot be written as JSON"),
    "bool-variable": (
        {"environment": {"A": "x", "B": True}},
        r"^environment.B: expected text, got true\n  Put it in quotes to make it text.$",
    ),
    "parameter-server": (
        {"framework": "pytorch", "distribution": {"parameter_server": {}}},
        r"^distribution: PyTorch has no parameter server, so every host would train alone\n  Use .*torch_distributed",
    ),
    "hugging-face": (
        {"framework": "huggingface", "pytorch_version": "2.5.1", "distribution": {"parameter_server": {}}},
        r"^distribution: PyTorch has no parameter server",
    ),
    "secret": ({"environment": "TOKEN=sesame"}, r"^environment: expected a mapping, got text$"),
    "variable": ({"environment": {"A-B": "x"}}, r"environment: 'A-B' is not a valid variable name"),
    "name": ({"job_name": "my_job"}, r"job name 'my_job': only letters.*\n  For example: my-job"),
    "long-name": ({"job_name": "x" * 64}, r"has 64 characters, 63 are allowed"),
    "spot": ({"use_spot_instances": True}, r"use_spot_instances: needs a max_wait"),
    "short-wait": (
        {"use_spot_instances": True, "max_run": 9, "max_wait": 5},
        r"max_wait of at least max_run",
    ),
    "hangs": ({"on_hang": "restart"}, r"on_hang: restart needs max_retry_attempts"),
    "never": (
        {"on_hang": "stop", "hang_after": 0},
        r"on_hang: stop needs to find hangs, but hang_after is 0",
    ),
    "blind": (
        {"on_hang": "stop", "samples": False},
        r"on_hang: stop needs to find hangs, but samples is off",
    ),
    "wait": ({"max_wait": 5}, r"max_wait: needs use_spot_instances"),
    "subnets": ({"subnets": ["a"]}, r"subnets and security_group_ids: set both or neither"),
    "source": ({"source_dir": "src"}, r"source_dir: needs an entry_point"),
    "mode": ({"input_mode": "Fast"}, r"^input_mode: expected File, FastFile or Pipe, got 'Fast'$"),
    "metric": (
        {"metric_definitions": [{"Name": "a"}]},
        r"metric_definitions\[0\]: expected the keys Name and Regex",
    ),
    "regex": (
        {"metric_definitions": [{"Name": "a", "Regex": "("}]},
        r"metric_definitions\[0\].Regex: missing \)",
    ),
    "both": (
        {
            "instance_count": 2,
            "instance_groups": [{"instance_group_name": "a", "instance_type": "b", "instance_count": 1}],
        },
        r"instance_groups: cannot be combined with",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    fields, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message):
        TrainingJob.from_dict(fields)


@pytest.mark.parametrize("text", ["{bad", "", "[1]", "null", '{"job_name": "\ud800"}', b"\xff"])
def test_text_that_is_not_a_job(text: str | bytes) -> None:
    with pytest.raises(InvalidJob, match="not a JSON object"):
        TrainingJob.from_json(text)
