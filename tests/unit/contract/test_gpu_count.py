"""The GPUs of a host, on fabricated /dev and /proc, compared with torch's reading of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.contract import gpu_count, host
from cloudtrain.contract.host import visible_gpus

Machine = Callable[..., None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes files of a machine below a folder that is used as the root."""
    monkeypatch.setattr(host, "Path", lambda path: tmp_path / str(path).lstrip("/"))

    def make(*paths: str, listed: int = 0) -> None:
        for path in [
            *paths,
            *(f"/proc/driver/nvidia/gpus/0000:{number:02x}:00.0" for number in range(listed)),
        ]:
            (tmp_path / path.lstrip("/")).mkdir(parents=True)

    make("/dev")
    return make


def nvml(count: int, init: int = 0, get: int = 0) -> Callable[[str], object]:
    """A fabricated ctypes.CDLL: NVIDIA's management library, with the results of two of its functions."""

    class Library:
        def nvmlInit_v2(self) -> int:
            return init

        def nvmlDeviceGetCount_v2(self, place: object) -> int:
            place._obj.value = count  # type: ignore[attr-defined]
            return get

        def nvmlShutdown(self) -> int:
            return 0

    return lambda _name: Library()


def test_a_container_has_the_gpus_of_its_dev_not_those_of_the_machine(machine: Machine) -> None:
    machine("/dev/nvidia6", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps", listed=8)
    assert gpu_count({}) == 1
    assert visible_gpus({}) == ("0",)


@pytest.mark.parametrize("mark", ["/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"])
def test_a_container_without_gpus_on_a_machine_with_gpus(machine: Machine, mark: str) -> None:
    machine(mark, listed=8)
    assert gpu_count({}) == 0


def test_a_machine_without_device_nodes_yet(machine: Machine) -> None:
    machine(listed=4)
    assert gpu_count({}) == 4


def test_nvml_finds_gpus_without_device_nodes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", nvml(2))
    assert gpu_count({}) == 2
    machine("/dev/nvidia0", listed=8)
    assert gpu_count({}) == 1, "device nodes come first"


@pytest.mark.parametrize("codes", [{"init": 18}, {"get": 999}])
def test_nvml_that_fails_is_ignored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, codes: dict[str, int]
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", nvml(7, **codes))
    machine(listed=3)
    assert gpu_count({}) == 3


def test_a_process_sees_one_mig_device(machine: Machine) -> None:
    machine("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")
    machine("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0")
    assert gpu_count({}) == 2, "the parts belong to others: only the nodes of the driver are here"
    machine("/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")
    assert gpu_count({}) == 1
    assert gpu_count({"CUDA_VISIBLE_DEVICES": ""}) == 0


def test_several_mig_devices_are_one_for_a_process_and_several_to_share_out() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "MIG-a,MIG-b"}
    assert gpu_count(environ) == 1
    assert visible_gpus(environ) == ("MIG-a", "MIG-b")


def test_numbers_beyond_the_machine_end_the_list(machine: Machine) -> None:
    machine("/dev/nvidia0", "/dev/nvidia1")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,0"}) == ("1", "0")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,2,0"}) == ("1",)


@pytest.mark.parametrize(
    "value",
    [
        "", "0", "0,1", "3, 1", "-1", "0,-1,1", "NoDevFiles", "void", "none", "0,0", "1,2,1", "0,x,1", "1gpu2,2ampere",
        "+1", "01", ",0", "0,,1", "GPU-a", "GPU-a,GPU-b", "GPU-a,0", "GPU-a,GPU-a", "0,GPU-a", "MIG-a,GPU-b",
    ],
)  # fmt: skip
def test_the_variable_is_read_as_cuda_reads_it(
    machine: Machine, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert list(visible_gpus()) == [str(entry) for entry in torch.cuda._parse_visible_devices()]
