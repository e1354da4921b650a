"""An image without a registry: a folder with links, into which this machine's /usr is mounted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

FOLDERS = ("usr", "etc", "dev", "proc", "sys", "tmp", "root", "home")
LINKS = ("bin", "sbin", "lib", "lib64")
FILES = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf")


def machine_image(folder: Path) -> Path:
    """Make the image. A container of it needs the mount ``/usr:/usr``."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    for name in LINKS:
        if Path("/", name).exists():
            (folder / name).symlink_to(f"usr/{name}")
    for name in FILES:
        source = Path("/etc", name)
        if source.exists():
            shutil.copy(source, folder / "etc" / name)
    alternatives = Path("/etc/alternatives")
    if alternatives.is_dir():
        shutil.copytree(alternatives, folder / "etc" / "alternatives", symlinks=True)
    return folder


def need_charliecloud() -> None:
    """Skip the test without Charliecloud; in CI, fail."""
    if not shutil.which("ch-run"):
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "there is no ch-run"
        pytest.skip("needs charliecloud-runtime")
