"""The cases of `programs`, run by real ranks in TensorFlow's environment, all cases in one launch."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

import cloudtrain
from cloudtrain.contract import RankSlot

PROGRAMS = Path(__file__).parent / "programs"
LAUNCHES: dict[str, tuple[int, list[str], dict[str, str]]] = {
    "keras-3": (2, ["collectives", "training"], {}),
    "runtime": (2, ["runtime_collectives"], {}),
    "tf-keras": (2, ["training"], {"TF_USE_LEGACY_KERAS": "1"}),
    "alone": (1, ["collectives", "training", "names"], {}),
}
"""Number of ranks, modules with cases, and environment variables."""


def cases() -> list[tuple[str, str]]:
    return [
        (launch, f"{module}.{name}")
        for launch, (_, modules, variables) in LAUNCHES.items()
        for module in modules
        for indent, name in re.findall(
            r"^( *)def case_(\w+)\(", (PROGRAMS / f"{module}.py").read_text(), re.M
        )
        if variables or not indent  # indented cases are for tf_keras only
    ]


@functools.cache
def failures(python: str, launch: str) -> dict[str, list[str]]:
    """Return the failures of each case, one text per rank."""
    count, modules, variables = LAUNCHES[launch]
    with tempfile.TemporaryDirectory() as folder:
        ended = run_ranks(python, count, variables, folder, *modules)
        reports = [Path(folder, str(rank)) for rank in range(count)]
        errors = [json.loads(path.read_text()) if path.exists() else {} for path in reports]
    return {
        case: [
            f"rank {rank}: {error}"
            for rank, found in enumerate(errors)
            if (error := found.get(case, f"was not run\n{ended}"))
        ]
        for _, case in cases()
    }


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("launch", "case"), cases())
def test_case(tensorflow_python: str, launch: str, case: str) -> None:
    found = failures(tensorflow_python, launch)[case]
    assert not found, "\n".join(found)


def run_ranks(python: str, count: int, variables: dict[str, str], *arguments: str) -> str:
    """Run all cases as ``count`` ranks until they end. Return stdout and stderr of all ranks."""
    slots = RankSlot.on_host(0, 1, count)
    named = {name for slot in slots for name in slot.environment("", 0)}
    base = {name: value for name, value in os.environ.items() if name not in named}
    base |= {
        "PYTHONPATH": str(Path(cloudtrain.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **variables,
    }
    port = free_port()
    places = [slot.environment("127.0.0.1", port) for slot in slots] if count > 1 else [{}]
    command = [python, str(PROGRAMS / "_run_cases.py"), *arguments]
    with tempfile.TemporaryFile("w+") as output:
        processes = [
            subprocess.Popen(command, env={**base, **place}, stdout=output, stderr=subprocess.STDOUT)
            for place in places
        ]
        try:
            for process in processes:
                process.wait(300)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        output.seek(0)
        return output.read()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
