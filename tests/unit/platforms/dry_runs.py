"""The dry run of every platform, and what each option and field changes in it, as text.

python tests/unit/platforms/dry_runs.py    writes tests/data/dry_runs/PLATFORM.txt again

A change of the code that is meant to change nothing leaves these files as they are.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from jobs_of_platforms import CASES, resolved
from option_values import NEEDS, VALUES, own_options

from cloudtrain.errors import CloudtrainError

FOLDER = Path(__file__).parents[2] / "data" / "dry_runs"

OUTPUT = {"output_path": "s3://bucket/out"}
BASES: dict[str, dict[str, Any]] = {
    "local": {},
    "container": {"image_uri": "image:1"},
    "container-toolkit": CASES["container-toolkit"].fields,
    "hosts": CASES["hosts"].fields,
    **{
        f"kubernetes-{rendering}": {
            "image_uri": "image:1",
            **OUTPUT,
            "platform_options": {"namespace": "team", "delivery": "configmap", "rendering": rendering},
        }
        for rendering in ("job", "jobset", "trainjob", "mpijob")
    },
    "sagemaker": CASES["sagemaker"].fields,
    "sagemaker-toolkit": CASES["sagemaker-toolkit"].fields,
    "slurm": {"platform_options": {"profile": "kraken"}},
    "pbs": {},
    "torque": {},
    "cobalt": {},
    "lsf": {},
}
"""The fields of the job whose dry run is printed whole, by platform and kind."""

MPI = {"mpi": {"enabled": True, "processes_per_host": 2}}
FIELDS: dict[str, dict[str, Any]] = {
    "hyperparameters": {
        "hyperparameters": {"epochs": 10, "lr": 1e-3, "on": True, "text": "a 'b'", "no": None}
    },
    "hyperparameters of a module": {
        "hyperparameters": {"sizes": [1, 2], "empty": ""},
        "entry_point": "go.sh",
    },
    "arguments": {"arguments": ["--lr", "0.1", "a b", "$HOME"]},
    "environment": {"environment": {"PLAIN": "a b", "QUOTES": "'\"", "A_TOKEN": "x"}},
    "secrets": {"secrets": ["WANDB_API_KEY"]},
    "two hosts": {"instance_count": 2},
    "groups": {
        "instance_groups": [
            {"instance_group_name": "a", "instance_type": "ml.m5.large", "instance_count": 1},
            {"instance_group_name": "b", "instance_type": "ml.g5.xlarge", "instance_count": 2},
        ],
        "instance_type": None,
    },
    "processes": {
        "distribution": {"processes": {"enabled": True, "processes_per_host": 2}},
        "instance_count": 2,
    },
    "mpi": {"distribution": MPI, "instance_count": 2},
    "mpi with options": {
        "distribution": {"mpi": {**MPI["mpi"], "custom_mpi_options": "-x NCCL_DEBUG=INFO --verbose"}}
    },
    "torchrun": {"distribution": {"torch_distributed": {"enabled": True}}, "instance_count": 2},
    "ranks that the script starts": {
        "distribution": {"agent": {"command": "launch --ranks 2"}},
        "instance_count": 2,
    },
    "smdistributed": {"distribution": {"smdistributed": {"dataparallel": {"enabled": True}}}},
    "channels": {
        "inputs": {
            "train": {
                "s3_data": "s3://bucket/train",
                "input_mode": "FastFile",
                "distribution": "ShardedByS3Key",
            },
            "test": "s3://bucket/test",
        },
        **OUTPUT,
    },
    "input mode": {"inputs": {"train": "s3://bucket/train"}, "input_mode": "Pipe", **OUTPUT},
    "model": {"model_uri": "s3://bucket/model.tar.gz", "model_channel_name": "base", **OUTPUT},
    "outputs": OUTPUT,
    "not compressed": {**OUTPUT, "disable_output_compression": True},
    "checkpoints": {"checkpoint_s3_uri": "s3://bucket/c", **OUTPUT},
    "folder of checkpoints": {"checkpoint_local_path": "/opt/ml/saved", **OUTPUT},
    "limits": {
        "max_run": 3600,
        "hang_timeout": 120,
        "join_timeout": 30,
        "host_timeout": 40,
        "stop_grace": 50,
    },
    "retries": {"max_retry_attempts": 4},
    "spot": {"use_spot_instances": True, "max_wait": 7200, "max_run": 3600},
    "program of the image": {"container_entry_point": ["/bin/train"], "container_arguments": ["--fast"]},
    "log level": {"container_log_level": 10},
    "metrics": {"metric_definitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]},
    "timeline": {"timeline": True},
    "machine": {"instance_type": "ml.p4d.24xlarge", "volume_size": 100},
    "warm pool": {"keep_alive_period_in_seconds": 600},
    "network": {
        "subnets": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "enable_network_isolation": True,
        "encrypt_inter_container_traffic": True,
    },
    "keys": {"volume_kms_key": "key-1", "output_kms_key": "key-2"},
    "tags": {"tags": [{"Key": "team", "Value": "vision"}]},
}
"""Requests that a user may make on any platform. Where a platform refuses one, the dry run is the error."""

LONGEST = 400
"""Characters of a value that is shown: what is longer is a program of cloudtrain's, or an archive."""
NAMES = (
    (re.compile(r"[0-9a-f]{12,}"), "HASH"),
    (re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+Z?"), "TIME"),
)


@contextlib.contextmanager
def fixed_machine() -> Iterator[dict[str, str]]:
    """An account, a folder and settings that are the same everywhere. Yields a name for each of its paths."""
    with tempfile.TemporaryDirectory(prefix="dry-") as name:
        folder = Path(name).resolve()
        (folder / "hosts.txt").write_text("localhost slots=3\n")
        (folder / "config.yaml").write_text(
            "slurm: {profiles: {kraken: {folder: /shared}, theta: {partition: main}}}"
        )
        environ = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "USER": "ada",
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "CLOUDTRAIN_CONFIG": str(folder / "config.yaml"),
            "AWS_DEFAULT_REGION": "us-east-1",
            "WANDB_API_KEY": "wandb-secret",
        }
        before = Path.cwd()
        os.chdir(folder)
        try:
            with mock.patch.dict(os.environ, environ, clear=True):
                yield {sys.executable: "PYTHON", str(folder): "FOLDER"}
        finally:
            os.chdir(before)


def dry_run(platform: str, fields: Mapping[str, Any], places: Mapping[str, str]) -> str:
    """The script, if there is one, and a line for each value of the rest of the request; or the error."""
    try:
        runs = CASES[platform].platform()
        request = runs.render(resolved(runs, dict(fields)))
    except CloudtrainError as error:
        text = f"refused: {error.message}\n{error.hint}".rstrip()
    else:
        body = json.loads(request.to_json())
        script = body.pop("script", "")
        text = "\n".join([*script.splitlines(), *_lines(body)])
    for place, name in places.items():
        text = text.replace(place, name)
    for pattern, name in NAMES:
        text = pattern.sub(name, text)
    return text + "\n"


def _lines(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _lines(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            key = item.get("name", number) if isinstance(item, dict) else number
            yield from _lines(item, f"{path}[{key}]")
    elif isinstance(value, str) and value.startswith("{") and value.endswith("}"):
        yield from _lines(json.loads(value), f"{path}: ")
    else:
        text = json.dumps(value, ensure_ascii=False)
        yield f"{path} = {text if len(text) < LONGEST else 'A PROGRAM'}"


def variants(kind: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each change: its name, the fields without it, the fields with it."""
    platform = kind.split("-")[0]
    base = BASES[kind]
    for name, given in FIELDS.items():
        yield name, base, {**base, **given}
    if kind.endswith("-toolkit") or kind in ("kubernetes-jobset", "kubernetes-trainjob", "kubernetes-mpijob"):
        return  # the options are those of the other kind
    options = base.get("platform_options", {})
    for name in own_options(platform):
        if name not in VALUES[platform]:
            continue
        needed = {**options, **NEEDS.get(name, {})}
        given = {**needed, name: VALUES[platform][name]}
        if name == "hostfile":
            needed.pop("hosts")
            given = {name: VALUES[platform][name]}
        image = {"image_uri": "python:3.12"} if "container" in given else {}
        without = {**base, **image, "platform_options": needed}
        yield f"platform_options.{name}", without, {**base, **image, "platform_options": given}


def document(kind: str) -> str:
    """The dry run of a kind of job, and the lines that each variant removes from it and adds to it."""
    platform = kind.split("-")[0]
    with fixed_machine() as places:
        parts = [dry_run(platform, BASES[kind], places)]
        for name, without, given in variants(kind):
            before, after = (dry_run(platform, fields, places) for fields in (without, given))
            parts.append(f"== {name}\n{_changes(before, after)}")
    return "\n".join(parts)


def _changes(before: str, after: str) -> str:
    if after.startswith("refused:"):
        return after
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return "".join(f"{line}\n" for line in lines if not line.startswith(("---", "+++", "@@")))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for kind in BASES:
        (FOLDER / f"{kind}.txt").write_text(document(kind))
