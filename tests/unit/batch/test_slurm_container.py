"""Containers that srun starts: Pyxis and OCI bundles."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.slurm.container import (
    check_srun,
    inner_command,
    link_own_folder,
    step_options,
    unlink_own_folder,
    write_bundle,
)
from cloudtrain.runtime.start.node_container import START, Container

LINK = "/tmp/cloudtrain-4f/ml"
PYXIS_HELP = """
Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]] [ : [OPTIONS(N)...]] executable(N) [args(N)...]
      --container                Path to OCI container bundle
      --contiguous                demand a contiguous range of nodes

Options provided by plugins:
      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH
                              [pyxis] the image to use for the container
"""
"""From ``srun --help`` of Slurm 22.05 and the README of Pyxis."""


def test_pyxis() -> None:
    # options of Pyxis 0.24 (args.c), as in its README since 0.9; --container-env since 0.16
    container = Container(
        "pyxis", "docker://nvcr.io#nvidia/pytorch:24.05-py3", ("/data:/in:ro",), ("--container-remap-root",)
    )
    environ = {"A_TOKEN": "s3cret", "NCCL_DEBUG": "INFO", "PATH": "/usr/bin", "BASH_FUNC_module%%": "() {"}
    options = step_options(
        container, LINK, ["/shared:/shared:ro", "/shared/jobs/a:/shared/jobs/a:ro"], environ, ""
    )
    assert options == [
        "--container-image=docker://nvcr.io#nvidia/pytorch:24.05-py3",
        "--container-mounts=/tmp/cloudtrain-4f/ml:/opt/ml,/shared:/shared:ro,/data:/in:ro",
        "--container-workdir=/opt/ml",
        "--no-container-mount-home",
        "--no-container-entrypoint",
        "--container-env=A_TOKEN,NCCL_DEBUG",
        "--container-remap-root",
    ]
    assert "s3cret" not in " ".join(options)
    home = step_options(Container("pyxis", "/i.sqsh", home=True), LINK, [], {}, "")
    assert "--container-mount-home" in home


def test_the_command_is_found_in_the_container() -> None:
    assert inner_command("/shared/runtime/a.pyz", ["step"]) == [
        *("/usr/bin/env", "sh", "-c", START, "/shared/runtime/a.pyz", "step"),
    ]


def test_srun_that_cannot() -> None:
    check_srun("pyxis", PYXIS_HELP, "n1")
    check_srun("oci", PYXIS_HELP, "n1")
    plain = PYXIS_HELP.split("Options provided by plugins")[0]
    with pytest.raises(
        PlatformError, match=r"srun on n1 has no --container-image .*Pyxis.* is not installed"
    ):
        check_srun("pyxis", plain, "n1")
    with pytest.raises(PlatformError, match=r"srun on n1 has no --container .*21.08"):
        check_srun("oci", "      --contiguous   demand", "n1")


def test_a_bundle_gets_the_mounts_of_the_job(tmp_path: Path) -> None:
    bundle, target = tmp_path / "bundle", tmp_path / "job-bundle"
    bundle.mkdir()
    proc = {"destination": "/proc", "type": "proc", "source": "proc"}
    (bundle / "config.json").write_text(
        json.dumps({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "mounts": [proc]})
    )
    container = Container("oci", str(bundle), ("/data:/in:ro",))
    write_bundle(container, LINK, ["/shared"], target)
    config = json.loads((target / "config.json").read_text())
    assert config["root"]["path"] == f"{bundle}/rootfs"
    assert config["mounts"] == [
        proc,
        {"destination": "/opt/ml", "type": "none", "source": LINK, "options": ["rbind", "rw"]},
        {"destination": "/shared", "type": "none", "source": "/shared", "options": ["rbind", "rw"]},
        {"destination": "/in", "type": "none", "source": "/data", "options": ["rbind", "ro"]},
    ]
    assert step_options(container, LINK, ["/shared"], {}, str(target)) == [f"--container={target}"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"root": 3}', None])
def test_something_else_than_a_bundle(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(PlatformError, match="not the configuration of an OCI bundle"):
        write_bundle(Container("oci", str(tmp_path)), LINK, [], tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_the_link_to_the_own_folder(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    (tmp_path / "base").mkdir()
    shared = tmp_path / hashlib.sha256(b"code").hexdigest() / "cloudtrain.pyz"
    shared.parent.mkdir()
    shared.write_bytes(b"code")
    link_own_folder(str(parent), str(tmp_path / "base"), [str(shared)])
    assert (parent / "shared" / shared.parent.name / shared.name).read_bytes() == b"code"
    assert (parent / "ml").resolve() == tmp_path / "base"
    assert parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):  # another user's
        link_own_folder(str(parent), "/", [])
    unlink_own_folder(str(parent))
    unlink_own_folder(str(parent))
    assert not parent.exists() and (tmp_path / "base").is_dir()
    shared.write_bytes(b"evil")
    with pytest.raises(
        PlatformError, match=r"cloudtrain\.pyz was changed: its SHA-256 is not the name of its folder"
    ):
        link_own_folder(str(parent), str(tmp_path / "base"), [str(shared)])
    unlink_own_folder(str(parent))
