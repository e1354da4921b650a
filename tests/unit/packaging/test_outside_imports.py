"""Finding a script's imports from outside its source."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from cloudtrain.errors import InvalidSource, StorageError
from cloudtrain.packaging.imports import outside_imports, read_sources


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.py": "import os, sys, json.decoder"}, []),
        ({"train.py": "import torch.nn as nn\nfrom numpy import array"}, ["numpy", "torch"]),
        ({"train.py": "import helpers", "helpers.py": "import torch"}, ["torch"]),
        ({"train.py": "import helpers", "unused.py": "import torch", "helpers.py": ""}, []),
        ({"train.py": "from lib.models import net", "lib/models/net.py": "import torch"}, ["torch"]),
        ({"train.py": "import lib.models", "lib/__init__.py": "import jax", "lib/models.py": ""}, ["jax"]),
        (
            {
                "train.py": "from lib import a",
                "lib/a.py": "from . import b\nfrom .b import c",
                "lib/b.py": "import x",
            },
            ["x"],
        ),
        ({"train.py": "from lib.a import f", "lib/a.py": "from ..top import g", "top.py": "import y"}, ["y"]),
        ({"train.py": "import a", "a.py": "import train, b", "b.py": "import a, z"}, ["z"]),
        ({"train.py": "try:\n  import apex\nexcept ImportError:\n  apex = None"}, []),
        ({"train.py": "try:\n  import apex\nexcept (ImportError, OSError):\n  apex = None"}, []),
        ({"train.py": "try:\n  import apex\nexcept KeyError:\n  pass"}, ["apex"]),
        ({"train.py": "if TYPE_CHECKING:\n  import torch\nelse:\n  import jax"}, ["jax"]),
        ({"train.py": "def main():\n  import torch"}, ["torch"]),
        # next to a script that is not at the top
        ({"src/train.py": "import near, far", "src/near.py": "import a", "far.py": "import b"}, ["a", "b"]),
        ({"run.sh": "import nothing", "train.py": ""}, []),
    ],
)
def test_imports_are_followed_through_the_source(files: dict[str, str], expected: list[str]) -> None:
    entry_point = next(iter(files))
    assert outside_imports(_encoded(files), entry_point) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import cloudtrain\nfrom cloudtrain import environment", []),
        ("import horovod", []),
        ("import horovod.torch as hvd", ["torch"]),
        ("import horovod.tensorflow.keras as hvd", ["numpy", "tensorflow"]),
        ("from horovod import keras", ["keras", "numpy", "tensorflow"]),
        ("import cloudtrain.distributed.tensorflow as hvd", ["numpy", "tensorflow"]),
        ("from cloudtrain.distributed import numpy as hvd", ["numpy"]),
        ("from cloudtrain.checkpoint.torch import capture", ["torch"]),
    ],
)
def test_a_bundled_package_is_replaced_by_what_it_needs(script: str, expected: list[str]) -> None:
    assert outside_imports(_encoded({"train.py": script}), "train.py") == expected


def test_requirements_install_what_a_bundled_package_needs() -> None:
    files = _encoded({"train.py": "import horovod.tensorflow", "requirements.txt": "tensorflow"})
    assert outside_imports(files, "train.py") == []


def test_the_real_horovod_is_not_bundled() -> None:
    files = _encoded({"train.py": "import horovod.torch"})
    assert outside_imports(files, "train.py", bundled=["cloudtrain"]) == ["horovod", "torch"]


@pytest.mark.parametrize(
    ("requirements", "module"),
    [
        ("torch==2.5.1", "torch"),
        ("torch [extra] >= 2 ; python_version > '3.8'", "torch"),
        ("PyYAML", "yaml"),
        ("scikit_learn>1", "sklearn"),
        ("git+https://github.com/someone/thing#egg=thing", "thing"),
        ("thing @ https://example.com/thing.whl", "thing"),
        ("# a comment\n\n  my-package~=1.0", "my_package"),
        ("-r more/base.txt", "deep"),
        ("-r requirements.txt\ntorch", "torch"),
    ],
)
def test_what_requirements_install_is_not_missing(requirements: str, module: str) -> None:
    files = _encoded(
        {"requirements.txt": requirements, "more/base.txt": "deep", "train.py": f"import {module}, other"}
    )
    assert outside_imports(files, "train.py") == ["other"]


def test_a_module_that_does_not_compile_is_named() -> None:
    files = _encoded({"train.py": "import lib.broken", "lib/broken.py": "x = 1\ny = ("})
    with pytest.raises(InvalidSource, match=r"lib/broken\.py:2: '\(' was never closed"):
        outside_imports(files, "train.py")


def test_a_file_that_is_not_imported_may_be_broken() -> None:
    assert outside_imports(_encoded({"train.py": "", "template.py": "{{ x }} ("}), "train.py") == []


def test_sources_are_read_from_the_archive(tmp_path: Path) -> None:
    path = tmp_path / "sourcedir.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("train.py", "data.bin", "lib/a.py", "requirements.txt"):
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
    assert read_sources(path) == {"train.py": b"text", "lib/a.py": b"text", "requirements.txt": b"text"}


def test_a_file_that_is_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "sourcedir.tar.gz").write_bytes(b"no archive")
    with pytest.raises(StorageError, match="cannot read the source archive"):
        read_sources(tmp_path / "sourcedir.tar.gz")


def _encoded(files: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}
