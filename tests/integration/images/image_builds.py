"""Builds cloudtrain's images without a registry or a network. A small wheel replaces the framework."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

TIMEOUT = 280


def write_wheel(folder: Path, name: str) -> None:
    """A wheel of the module ``name``, which says its name where it is imported."""
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"print('this is {name}')\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {path: hashlib.sha256(text.encode()).digest() for path, text in files.items()}
    encoded = {
        path: base64.urlsafe_b64encode(digest).rstrip(b"=").decode() for path, digest in hashes.items()
    }
    record = "".join(f"{path},sha256={digest},\n" for path, digest in encoded.items())
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{about}/RECORD": f"{record}{about}/RECORD,,\n"}.items():
            wheel.writestr(path, text)


def cloudtrain(*arguments: str, **environ: str) -> tuple[int, Any]:
    """Run ``cloudtrain ... --json``; its exit status, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "cloudtrain", *arguments, "--json"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert not done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)
