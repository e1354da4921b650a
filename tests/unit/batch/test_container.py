"""How the runtime starts in a container on a cluster: command lines and environments of the engines."""

from __future__ import annotations

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.container_options import image_reference
from cloudtrain.runtime.start.node_container import (
    Container,
    Mount,
    Node,
    command,
    environment,
    names_inside,
    pull,
    without_repeats,
)

INNER = ["/bin/sh", "-c", "run"]
NODE = Node(
    "/usr/bin/engine",
    "/shared/jobs/a/hosts/n1",
    (Mount("/shared", "/shared"), Mount("/shared/jobs/a", "/shared/jobs/a")),
)
OWN = {"A_TOKEN": "s3cret$(date)", "CLOUDTRAIN_ATTEMPT": "0"}


def test_apptainer() -> None:
    # as in the pages "Bind Paths and Mounts" and "GPU Support" of Apptainer 1.4
    container = Container("apptainer", "docker://python:3.12", ("/data:/in:ro",), ("--fakeroot",))
    gpu = Node(NODE.program, NODE.base, NODE.mounts, gpu="nvidia")
    assert command(container, gpu, INNER, {}) == [
        "/usr/bin/engine",
        "exec",
        "--no-home",
        "--nv",
        *("--bind", "/shared/jobs/a/hosts/n1:/opt/ml"),
        *("--bind", "/shared:/shared"),
        *("--bind", "/data:/in:ro"),
        *("--pwd", "/opt/ml"),
        "--fakeroot",
        "docker://python:3.12",
        *INNER,
    ]
    amd = command(container, Node(NODE.program, NODE.base, gpu="amd"), INNER, {})
    assert "--rocm" in amd and "--nv" not in amd
    home = command(Container("apptainer", "a.sif", home=True), NODE, INNER, {})
    assert "--no-home" not in home and "--nv" not in home


def test_charliecloud() -> None:
    container = Container("charliecloud", "/images/torch", ("/data",), home=True)
    assert command(container, NODE, INNER, {"PATH": "/opt/node/bin"}) == [
        "/usr/bin/engine",
        "--home",
        "--bind=/shared/jobs/a/hosts/n1:/opt/ml",
        "--bind=/shared:/shared",
        "--bind=/data:/data",
        "--set-env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "--cd=/opt/ml",
        "/images/torch",
        "--",
        *INNER,
    ]
    fake = command(container, Node("ch-run", "/b", mount_points=True), INNER, {})
    assert "--write-fake" in fake


def test_enroot_gets_the_names_of_variables_and_no_values() -> None:
    # doc/cmd/start.md and doc/image-format.md of Enroot 4.1
    container = Container("enroot", "/images/torch.sqsh", ("/data:/in:ro",))
    environ = {**OWN, "ENROOT_CACHE_PATH": "/cache", "PATH": "/usr/bin", "HOME": "/home/me"}
    line = command(container, NODE, INNER, environ)
    assert line == [
        "/usr/bin/engine",
        "start",
        *("--mount", "/shared/jobs/a/hosts/n1:/opt/ml:none:x-create=auto,rbind"),
        *("--mount", "/shared:/shared:none:x-create=auto,rbind"),
        *("--mount", "/data:/in:none:x-create=auto,rbind,ro"),
        *("--env", "A_TOKEN"),
        *("--env", "CLOUDTRAIN_ATTEMPT"),
        "/images/torch.sqsh",
        *INNER,
    ]


@pytest.mark.parametrize("engine", ["apptainer", "charliecloud", "enroot"])
def test_no_value_is_on_a_command_line(engine: str) -> None:
    container = Container(engine, "/image")
    environ = environment(container, {"PATH": "/usr/bin", "OTHER": "0ther"}, OWN)
    assert environ["A_TOKEN"] == OWN["A_TOKEN"]
    line = " ".join(command(container, NODE, INNER, environ))
    assert "s3cret" not in line and "0ther" not in line


def test_what_describes_the_node_stays_outside() -> None:
    node = {
        "PATH": "/opt/site/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/opt/cuda/lib64",
        "PYTHONPATH": "/home/me/lib",
        "VIRTUAL_ENV": "/home/me/venv",
        "TMPDIR": "/scratch/17",
        "LOADEDMODULES": "cuda/12",
        "ENROOT_CACHE_PATH": "/raid/cache",
        "APPTAINER_CACHEDIR": "/scratch/cache",
        "APPTAINERENV_LEAKED": "1",
        "NCCL_DEBUG": "INFO",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    inside = environment(Container("enroot", "/i.sqsh"), node, {"PYTHONPATH": "/opt/ml/code"})
    assert names_inside(Container("enroot", "/i.sqsh"), inside) == [
        "CUDA_VISIBLE_DEVICES",
        "NCCL_DEBUG",
        "PYTHONPATH",
    ]
    assert inside["ENROOT_CACHE_PATH"] == "/raid/cache"
    apptainer = environment(Container("apptainer", "/i.sif"), node, OWN)
    assert apptainer["APPTAINER_CACHEDIR"] == "/scratch/cache"
    assert apptainer["APPTAINERENV_A_TOKEN"] == "s3cret$(date)"
    assert apptainer["APPTAINER_NO_EVAL"] == "1", "no shell in the container evaluates a value"
    assert not {"TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "ENROOT_CACHE_PATH"} & set(apptainer)


def test_one_node_pulls_for_all() -> None:
    assert pull(Container("apptainer", "docker://python:3.12"), "/bin/apptainer", "/j/image") == [
        *("/bin/apptainer", "pull", "/j/image", "docker://python:3.12"),
    ]
    assert pull(Container("enroot", "docker://nvcr.io#nvidia/pytorch:24.05-py3"), "enroot", "/j/image") == [
        *("enroot", "import", "--output", "/j/image", "docker://nvcr.io#nvidia/pytorch:24.05-py3"),
    ]
    assert pull(Container("apptainer", "/images/a.sif"), "apptainer", "/j/image") == []
    assert pull(Container("pyxis", "docker://python"), "", "/j/image") == []


def test_folders_below_another_need_no_mount() -> None:
    given = [
        "/a/b",
        "/a",
        "/ab",
        "/c",
        "/a/in:/a/in:ro",
        "/c:/c:ro",
        "/copy:/a/shared:ro",
        "/d:/d:ro",
        "/d/out",
    ]
    assert list(map(str, without_repeats(map(Mount.parse, given)))) == [
        *("/a:/a", "/a/in:/a/in:ro", "/copy:/a/shared:ro", "/ab:/ab", "/c:/c", "/d:/d:ro", "/d/out:/d/out"),
    ]


@pytest.mark.parametrize(
    "text", ["data", "/a:b", "/a:/b:rx", "/a b:/c", "/a,b", "/a:/b:ro:x", '/a"', "/$HOME"]
)
def test_mounts_that_no_engine_understands(text: str) -> None:
    with pytest.raises(ValueError, match=r"absolute|character|neither"):
        Mount.parse(text)


def test_a_container_survives_its_request() -> None:
    container = Container("pyxis", "docker://x", ("/a:/b",), ("--container-remap-root",), home=True)
    assert Container.from_body({"container": container.to_body()}) == container
    assert Container.from_body({}) is None


@pytest.mark.parametrize(
    ("engine", "image", "reference"),
    [
        ("apptainer", "pytorch/pytorch:2.5.1", "docker://pytorch/pytorch:2.5.1"),
        ("apptainer", "docker://python:3.12", "docker://python:3.12"),
        ("apptainer", "oras://ghcr.io/a/b:1", "oras://ghcr.io/a/b:1"),
        ("apptainer", "/shared/torch.sif", "/shared/torch.sif"),
        ("apptainer", "/shared/sandbox", "/shared/sandbox"),
        ("pyxis", "nvcr.io/nvidia/pytorch:24.05-py3", "docker://nvcr.io#nvidia/pytorch:24.05-py3"),
        ("pyxis", "nvcr.io#nvidia/pytorch:24.05-py3", "docker://nvcr.io#nvidia/pytorch:24.05-py3"),
        ("pyxis", "python:3.12", "docker://python:3.12"),
        ("pyxis", "docker://localhost:5000/a:1", "docker://localhost:5000#a:1"),
        ("pyxis", "/shared/torch.sqsh", "/shared/torch.sqsh"),
        ("enroot", "docker://nvcr.io#nvidia/cuda", "docker://nvcr.io#nvidia/cuda"),
        ("charliecloud", "/shared/torch", "/shared/torch"),
        ("charliecloud", "almalinux:8", "almalinux:8"),
        ("oci", "/shared/bundle", "/shared/bundle"),
    ],
)
def test_forms_of_references(engine: str, image: str, reference: str) -> None:
    assert image_reference(engine, image) == reference


@pytest.mark.parametrize(
    ("engine", "image", "why"),
    [
        ("apptainer", "torch.sif", "relative"),
        ("enroot", "oras://ghcr.io/a/b", "cannot pull from oras"),
        ("pyxis", "library://a/b", "cannot pull from library"),
        ("charliecloud", "docker://python", "pulls no images"),
        ("oci", "python:3.12", "OCI bundle"),
        ("apptainer", "a b", "not the name of an image"),
        ("apptainer", "--writable", "not the name of an image"),
        ("pyxis", "python;id", "not a reference of Docker"),
    ],
)
def test_references_that_an_engine_cannot_use(engine: str, image: str, why: str) -> None:
    with pytest.raises(InvalidJob, match=why) as caught:
        image_reference(engine, image)
    assert caught.value.hint
