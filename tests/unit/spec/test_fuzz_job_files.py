"""Damaged job files: each is a job, or one error with a hint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fuzzing
import pytest
import yaml

from cloudtrain.errors import CloudtrainError, InvalidJob
from cloudtrain.spec import TrainingJob, apply_overrides, parse_yaml, read_job_file

JOBS: list[dict[str, Any]] = [
    {
        "entry_point": "train.py",
        "source_dir": "src",
        "instance_count": 2,
        "distribution": {"processes": {"processes_per_host": 2}},
        "hyperparameters": {"lr": 0.1, "layers": [1, 2], "name": "a"},
        "arguments": ["fit", "{channel.train}", 3, True],
        "environment": {"A": "b", "N": 1},
        "inputs": {
            "train": "s3://bucket/a",
            "val": {"s3_data": "s3://bucket/b", "distribution": "ShardedByS3Key"},
        },
        "metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    },
    {
        "entry_point": "train.py",
        "instance_type": "ml.m5.large",
        "instance_groups": [
            {"instance_group_name": "a", "instance_type": "ml.m5.large", "instance_count": 1}
        ],
        "role": "arn:aws:iam::111122223333:role/x",
        "tags": {"team": "a"},
        "profiler_config": {"system_monitor_interval_millis": 500},
        "debugger_hook_config": {"s3_output_path": "s3://bucket/c"},
        "checkpoint_s3_uri": "s3://bucket/d",
        "platform_options": {"master_port": 1234},
    },
    {"image_uri": "image", "container_entry_point": ["a"], "secrets": ["A_B"], "stop_grace": 1.5},
]
SYNTAX = "&a *a [ ] { } - ? : | > ! !!int !!python/object:os.system % @ ` # <<: --- ... ' , ~ 1e3 0x1f .inf"
EXPLAINED = re.compile(r": expected .*, got |: this field is required")
"""Messages that say what to do without a hint."""


def _dump(value: Any) -> bytes:
    try:
        return yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass")
    except yaml.YAMLError:
        return fuzzing.dump_json(value)


def test_damaged_yaml() -> None:
    choose = fuzzing.random("yaml")
    texts = [_dump(job).decode() for job in JOBS]

    def damaged() -> Any:
        while True:
            text = choose.choice(texts)
            for _ in range(choose.choice((1, 2, 5, 20))):
                at = choose.randrange(len(text) + 1)
                text = (
                    text[:at]
                    + choose.choice((*SYNTAX.split(), '"', "\t", "\n", " ", "\n  "))
                    + text[at + choose.randrange(3) :]
                )
            yield text

    fields = ["", "arguments", "environment.A", "hyperparameters.a.b", "framework_version"]
    fuzzing.check("yaml", damaged(), lambda text: parse_yaml(text, field=choose.choice(fields)), InvalidJob)


def test_damaged_job_files(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            job = TrainingJob.from_dict(read_job_file(path))
        except InvalidJob as error:
            if not EXPLAINED.search(error.message):
                raise
        else:
            assert TrainingJob.from_json(job.to_json()) == job

    fuzzing.check("job-file", fuzzing.damaged_documents(JOBS, fuzzing.random("job-file"), dump=_dump), read)


@pytest.mark.parametrize(
    "setting", ["a", "=", "a=[", "a..b=1", ".=1", "\0=\0", "hyperparameters.\ud800=1", "a=&b [*b]"]
)
def test_damaged_settings(setting: str) -> None:
    try:
        TrainingJob.from_dict(apply_overrides({"entry_point": "train.py"}, [setting]))
    except CloudtrainError as error:
        assert error.hint
