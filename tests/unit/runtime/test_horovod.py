"""The real Horovod is found without an import, and its ranks receive its variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.launchers.horovod import find_horovod, horovod_environment, start_rendezvous

LIBRARY = "torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so"
INSTALLED = {
    "gloo": ({LIBRARY: "\0HOROVOD_GLOO_RENDEZVOUS_ADDR\0", "__init__.py": ""}, "gloo"),
    "mpi-only": ({LIBRARY: "\0HOROVOD_GLOO_IFACE\0", "__init__.py": ""}, "mpi"),
    "another-framework": ({"tensorflow/mpi_lib.so": "HOROVOD_GLOO_RENDEZVOUS_ADDR"}, "gloo"),
    "built-for-nothing": ({"__init__.py": "", "torch/__init__.py": ""}, ""),
    "python-only": ({"__init__.py": "raise SystemExit('imported')", "torch.py": ""}, ""),
    "none": ({}, ""),
}


@pytest.mark.parametrize("case", INSTALLED)
def test_find_horovod(tmp_path: Path, case: str) -> None:
    files, expected = INSTALLED[case]
    for name, text in files.items():
        path = tmp_path / "horovod" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert find_horovod(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)}) == expected


def test_a_horovod_in_the_working_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "horovod" / "torch").mkdir(parents=True)
    (tmp_path / "horovod" / LIBRARY).write_text("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert find_horovod(sys.executable, os.environ) == ""


@pytest.mark.parametrize(
    ("package", "why"),
    [
        ("", "No module named 'horovod"),
        ("import os; os._exit(0)", "it exited without a message"),
        ("print('deprecated')", "No module named 'horovod.runner'"),
        ("raise ImportError('libmpi.so.40 is missing')", "libmpi.so.40 is missing"),
    ],
)
def test_a_rendezvous_server_that_does_not_start(tmp_path: Path, package: str, why: str) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text(package)
    path = os.pathsep.join([str(tmp_path), *sys.path[1:]])
    with pytest.raises(PlatformError, match=why):
        start_rendezvous(sys.executable, ["n1"], 2, {**os.environ, "PYTHONPATH": path}, loopback=True)


def test_the_environment_of_a_rank() -> None:
    slot = RankSlot(rank=3, local_rank=1, world_size=4, local_size=2, host_rank=1, host_count=2)
    assert horovod_environment(slot, "n2", ("n1", 1234), "eth0") == {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "n1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "1234",
        "HOROVOD_GLOO_IFACE": "eth0",
        "HOROVOD_HOSTNAME": "n2",
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
    }
