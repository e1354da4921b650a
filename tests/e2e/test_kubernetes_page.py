"""The commands of the page about Kubernetes run on a real API server."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import REPOSITORY, Reader, read_blocks
from kube_fixtures import Namespace
from kube_roles import RULES
from msgspec.structs import fields
from pages import PASSED, lock_line, parametrize_pages

from cloudtrain.platforms.kubernetes.options import FILE, KubernetesOptions
from cloudtrain.spec import TrainingJob

PAGE = "docs/guides/kubernetes.md"
CLAIM: dict[str, Any] = {
    "metadata": {"name": "shared"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "running_page", [PAGE])


def test_every_command_runs(
    running_page: str,
    kubernetes: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    kubernetes.bench.create("persistentvolumeclaims", kubernetes.name, CLAIM)
    (tmp_path / "config.yaml").touch()
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))
    assert Reader(tmp_path).follow(REPOSITORY / running_page) > 0
    record_property(PASSED, lock_line(running_page))


def test_the_role_of_the_page_is_the_one_that_the_tests_have() -> None:
    [block] = [block for block in read_blocks(REPOSITORY / PAGE) if block.file_name == "role.yaml"]
    assert yaml.safe_load(block.text)["rules"] == RULES


def test_the_fragments_of_the_page_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    for block in read_blocks(REPOSITORY / PAGE):
        if block.language != "yaml" or block.file_name:
            continue
        found = yaml.safe_load(block.text)
        if "kubernetes" in found:
            config.write_text(block.text)
            assert set(FILE.read().profiles) == {"research"}
        else:
            KubernetesOptions.of(TrainingJob.from_dict(found))


def test_the_table_of_options_is_that_of_the_code() -> None:
    text = (
        (REPOSITORY / "docs/reference/kubernetes.md")
        .read_text()
        .partition("\n## Options\n")[2]
        .partition("\n## ")[0]
    )
    cells = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    shown = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    options = {field.name for field in fields(KubernetesOptions)} - {"rendering_reason"}
    assert (sorted(shown), len(set(shown))) == (sorted(options), len(shown))
