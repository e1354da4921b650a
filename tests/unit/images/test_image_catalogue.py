"""The images that there are: their names, their versions, and what makes one another image."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.images import catalogue, find_flavour, flavours

NAMES = """
    python-cpu python-cpu-mpi
    pytorch-cpu pytorch-cpu-mpi pytorch-cpu-horovod
    pytorch-cuda pytorch-cuda-mpi pytorch-cuda126 pytorch-cuda126-mpi
    tensorflow-cpu tensorflow-cpu-mpi tensorflow-cpu-horovod tensorflow-cuda tensorflow-cuda-mpi
    mxnet-cpu mxnet-cpu-mpi mxnet-cpu-horovod
"""


def test_names() -> None:
    assert [flavour.name for flavour in flavours()] == NAMES.split()


def test_each_image_has_its_own_tag() -> None:
    images = [flavour.image for flavour in flavours()]
    assert len(set(images)) == len(images)
    assert find_flavour("pytorch-cpu-mpi").image.startswith("cloudtrain/pytorch:2.13.0-cpu-mpi-")


def test_the_framework_is_pinned() -> None:
    for flavour in flavours():
        packages = flavour.build_args["PACKAGES"]
        assert flavour.framework == "python" or f"=={flavour.version}" in packages, flavour.name
        assert ("mpi4py" in packages) == bool(flavour.variant), flavour.name


def test_only_cuda_has_efa() -> None:
    for flavour in flavours():
        assert bool(flavour.build_args["EFA_INSTALLER"]) == (flavour.device != "cpu"), flavour.name


def test_images_of_pytorch_have_what_torch_compile_calls() -> None:
    for flavour in flavours():
        system = flavour.build_args["SYSTEM"].split()
        assert ({"g++", "python3-dev"} <= set(system)) == (flavour.framework == "pytorch"), flavour.name


def test_images_of_mxnet_have_the_libraries_that_its_wheel_lacks() -> None:
    assert find_flavour("mxnet-cpu").build_args["SYSTEM"].split() == ["libgomp1", "libquadmath0"]


@pytest.mark.parametrize(
    ("name", "version", "cuda", "base"),
    [
        ("pytorch-cuda", None, "cu130", "13.0"),
        ("pytorch-cuda", "2.9.0", "cu130", "13.0"),
        ("pytorch-cuda", "2.8.0", "cu126", "12.6"),
        ("pytorch-cuda-mpi", "2.5.1", "cu124", "12.6"),
        ("pytorch-cuda", "2.2.2", "cu121", "12.6"),
        ("pytorch-cuda126", None, "cu126", "12.6"),
        ("pytorch-cuda126", "2.5.1", "cu124", "12.6"),
    ],
)
def test_the_cuda_of_a_release_of_pytorch(name: str, version: str | None, cuda: str, base: str) -> None:
    flavour = find_flavour(name, version)
    assert flavour.build_args["INDEX"] == f"https://download.pytorch.org/whl/{cuda}"
    assert f"torch=={flavour.version}+{cuda} " in flavour.build_args["PACKAGES"]
    assert flavour.base.startswith(f"nvidia/cuda:{base}.")
    assert flavour.build_args["DEVICE"] == "cuda"


@pytest.mark.parametrize("version", [None, "2.13.0", "2.13", "2"])
def test_the_pinned_version(version: str | None) -> None:
    flavour = find_flavour("pytorch-cpu", version)
    assert flavour.version == "2.13.0"
    assert flavour.build_command == "cloudtrain image build pytorch-cpu"


@pytest.mark.parametrize("version", ["2.12.1", "2.1", "2.13.0.1"])
def test_another_version_is_another_image(version: str) -> None:
    flavour = find_flavour("pytorch-cpu", version)
    assert f"torch=={version}+cpu" in flavour.build_args["PACKAGES"]
    assert flavour.recipe != find_flavour("pytorch-cpu").recipe
    assert flavour.build_command == f"cloudtrain image build pytorch-cpu --framework-version {version}"


def test_an_unknown_name() -> None:
    with pytest.raises(InvalidJob, match="no image 'pytorch-gpu'") as error:
        find_flavour("pytorch-gpu")
    assert "Did you mean 'pytorch-" in error.value.hint


@pytest.fixture
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of containers/ that is used in its place."""
    copy = shutil.copytree(catalogue.CONTAINERS, tmp_path / "containers")
    monkeypatch.setattr(catalogue, "CONTAINERS", copy)
    _forget()
    yield copy
    _forget()


def _forget() -> None:
    catalogue._catalogue.cache_clear()
    catalogue._files.cache_clear()


@pytest.mark.parametrize("name", ["Dockerfile", "train", "steps/packages"])
def test_a_changed_file_makes_another_image(containers: Path, name: str) -> None:
    before = find_flavour("mxnet-cpu")
    with (containers / name).open("a") as file:
        file.write("# changed\n")
    _forget()
    assert find_flavour("mxnet-cpu").recipe != before.recipe


def test_a_changed_version_makes_other_images_of_its_framework_only(containers: Path) -> None:
    before = {flavour.name: flavour.recipe for flavour in flavours()}
    path = containers / "images.yaml"
    path.write_text(path.read_text().replace("version: 1.9.1", "version: 1.9.2"))
    _forget()
    changed = [flavour.name for flavour in flavours() if flavour.recipe != before[flavour.name]]
    assert changed == ["mxnet-cpu", "mxnet-cpu-mpi", "mxnet-cpu-horovod"]
