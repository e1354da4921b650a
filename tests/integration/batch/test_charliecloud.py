"""The runtime's container on a node, with the real Charliecloud and an image made of this machine's own files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from machine_image import machine_image, need_charliecloud

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.start.container_files import contained, find_engine
from cloudtrain.runtime.start.node_container import Container

PROGRAM = """
import json, os
names = ("A_TOKEN", "FROM_IMAGE", "BOTH", "PATH", "VIRTUAL_ENV", "HOME")
found = {name: os.environ.get(name) for name in names}
open("/opt/ml/seen.json", "w").write(json.dumps({**found, "cwd": os.getcwd(), "in": os.listdir("/in/data")}))
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A host's folder."""
    need_charliecloud()
    folder = tmp_path / "n1"
    (folder / "input" / "config").mkdir(parents=True)
    (folder / "output").mkdir()
    (folder / "input" / "config" / "resourceconfig.json").write_text("{}")
    return folder


def run(container: Container, base: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    (base.parent / "program.py").write_text(PROGRAM)
    (base.parent / "local").mkdir()
    own = {"A_TOKEN": "s3cret $(id)", "BOTH": "job"}
    line, values = contained(
        container,
        str(base),
        base.parent / "local",
        [str(base.parent)],
        str(base.parent / "program.py"),
        {**os.environ, **environ},
        own,
    )
    assert "s3cret" not in " ".join(line)
    return subprocess.run(line, env=values, capture_output=True, text=True, cwd="/")


def test_what_a_program_sees_in_the_container(tmp_path: Path, base: Path) -> None:
    image = machine_image(tmp_path / "image")
    (image / "ch").mkdir()
    (image / "ch" / "environment").write_text(f"FROM_IMAGE='image'\nBOTH=image\nPATH={image_path()}\n")
    data = tmp_path / "in-data"
    data.mkdir()
    (data / "file").touch()
    container = Container("charliecloud", str(image), (*USR, f"{data}:/in/data"))
    done = run(container, base, VIRTUAL_ENV="/home/me/venv")
    assert done.returncode == 0, done.stderr
    seen = json.loads((base / "seen.json").read_text())
    assert seen.pop("HOME") != str(Path.home()) or Path.home() == Path("/root")
    assert seen == {
        "A_TOKEN": "s3cret $(id)",
        "FROM_IMAGE": "image",
        "BOTH": "job",
        "PATH": image_path(),
        "VIRTUAL_ENV": None,
        "cwd": "/opt/ml",
        "in": ["file"],
    }
    assert (image / "opt" / "ml").is_dir(), "ch-run before 0.33 needs the mount points in the image"
    assert not list((image / "opt" / "ml").iterdir())


def test_a_missing_engine_is_named_with_the_place() -> None:
    with pytest.raises(PlatformError, match=r"ch-run is not on .*: its PATH is /nowhere") as caught:
        find_engine(Container("charliecloud", "/image"), {"PATH": "/nowhere"})
    assert "modules" in caught.value.hint


def test_a_mount_point_behind_a_link_of_the_image_is_refused(tmp_path: Path, base: Path) -> None:
    image, outside = machine_image(tmp_path / "image"), tmp_path / "outside"
    outside.mkdir()
    (image / "opt").symlink_to(outside)
    with pytest.raises(PlatformError, match="has no /opt/ml, and it cannot be made there"):
        run(Container("charliecloud", str(image), USR), base)
    assert not list(outside.iterdir())


def test_an_image_without_python_is_reported(tmp_path: Path, base: Path) -> None:
    image = machine_image(tmp_path / "image")
    (image / "ch").mkdir()
    (image / "ch" / "environment").write_text("PATH=/nowhere\n")
    done = run(Container("charliecloud", str(image), USR), base)
    assert done.returncode == 127
    assert "no Python 3.9 or newer" in done.stderr


USR = ("/usr",)
"""The image is empty: its /usr is the machine's."""


def image_path() -> str:
    """A PATH with the Python that runs the tests first, if it is below /usr."""
    return (
        f"{os.path.dirname(os.path.realpath(sys.executable))}:/usr/bin:/bin" if in_usr() else "/usr/bin:/bin"
    )


def in_usr() -> bool:
    return os.path.realpath(sys.executable).startswith("/usr/")
