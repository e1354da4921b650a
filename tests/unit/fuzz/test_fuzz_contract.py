"""Damaged files of the contract, and damaged messages between hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fuzzing import check, damaged_documents, damaged_values, random

from cloudtrain.contract import Paths, encode_arguments, script_environment
from cloudtrain.distributed.negotiation.messages import Unpacker, pack
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.outputs.merge import Merge, differing_message, from_ranges

FILES: dict[str, Any] = {
    "hyperparameters": {
        "lr": "0.1", "name": '"x"', "layers": "[1, 2]", "sagemaker_program": '"train.py"',
        "sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2",
        "sagemaker_distribution_instance_groups": '["a"]', **encode_arguments(["--epochs", "5"]),
    },
    "resourceconfig": {
        "current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0",
        "current_instance_type": "ml.g5.xlarge", "current_group_name": "a",
        "instance_groups": [{"instance_group_name": "a", "instance_type": "x", "hosts": ["algo-1", "algo-2"]}],
    },
    "inputdataconfig": {"train": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"}},
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_contract(tmp_path: Path, name: str) -> None:
    paths = Paths(tmp_path)
    paths.input_config.mkdir(parents=True)
    for file, content in FILES.items():
        (paths.input_config / f"{file}.json").write_text(json.dumps(content))

    def read(data: bytes) -> None:
        (paths.input_config / f"{name}.json").write_bytes(data)
        try:
            config = HostConfig.read(paths, {})
            entry_point = config.entry_point
        except InvalidJob as error:
            if "names no entry point" not in error.message:
                assert f"{name}.json" in error.message or name == "resourceconfig", error.message
            raise
        arguments = config.script_arguments
        environment = script_environment(
            paths, config.host, config.hyperparameters, config.channels,
            arguments=arguments, job_name=config.job_name, entry_point=entry_point, master=("algo-1", 1),
        )  # fmt: skip
        for text in (*arguments, *environment, *environment.values()):
            assert b"\0" not in text.encode("utf-8", "surrogateescape")

    check(name, damaged_documents([FILES[name]], random(name)), read)


def test_the_plan_of_a_merge() -> None:
    valid = [
        [
            ["model", "weights", "file", 10],
            ["model", "a", "folder", None],
            ["model", "a/b", "link", "../weights"],
        ],
        [["model", "weights", "file", 10], ["output", "x", "file", 0]],
    ]

    def read(files: Any) -> None:
        merge = Merge(["algo-1", "algo-2"])
        merge.add_files("algo-1", valid[0])
        merge.add_files("algo-2", files)
        for share in merge.plan().values():
            assert all(isinstance(number, int) for number in share.give)
        merge.add_digests("algo-1", ["a"] * 3)
        merge.add_digests("algo-2", ["b"] * 3)
        differing_message(merge.differing(), "algo-1")
        merge.givers()

    check("merge", damaged_values(valid, random("merge")), read, (ValueError, TypeError, KeyError))


def test_the_ranges_of_a_share() -> None:
    def read(ranges: Any) -> None:
        assert len(from_ranges(ranges, 50)) <= 50

    check("merge", damaged_values([[[0, 5], [7, 9]]], random("ranges")), read, (ValueError, TypeError))


def test_messages_of_the_negotiation() -> None:
    def dump(value: Any) -> bytes:
        return pack(*value) if isinstance(value, list) and len(value) == 3 else pack("x", value, None)

    def safe(value: Any) -> bytes:
        try:
            return dump(value)
        except (TypeError, ValueError):
            return b"\0" * 20

    def read(data: bytes) -> None:
        list(Unpacker(1 << 20).feed(data))

    valid: list[Any] = [["request", ["allreduce", "key", 0, {"a": 1}, [1]], None]]
    check("messages", damaged_documents(valid, random("messages"), dump=safe), read, ValueError)
