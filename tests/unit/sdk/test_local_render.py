"""The request of the local platform, and the fields that it refuses instead of ignoring them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import TrainingJob
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.local import LocalPlatform


def body(**fields: Any) -> dict[str, Any]:
    job = TrainingJob.from_dict({"job_name": "a-job", "entry_point": "train.py", **fields})
    platform = LocalPlatform()
    return dict(platform.render(platform.resolve(job)).body)


def channel(**fields: Any) -> dict[str, Any]:
    return {"inputs": {"train": {"s3_data": "s3://b/x", **fields}}}


REFUSED = {
    "unknown": ({"platform_options": {"pyton": "x"}}, "'platform_options.pyton'\n  Did you mean 'python'"),
    "port": (
        {"platform_options": {"master_port": "abc"}},
        "^platform_options.master_port: expected a whole number",
    ),
    "port-range": (
        {"platform_options": {"master_port": -1}},
        "^platform_options.master_port: expected a whole number from 0 to 65,535",
    ),
    "python": ({"platform_options": {"python": 5}}, "^platform_options.python: expected text, got 5"),
    "no-python": ({"platform_options": {"python": "nosuch"}}, "there is no program 'nosuch' on the PATH"),
    "gzip": (channel(compression="Gzip"), "^inputs.train.compression: the local platform"),
    "records": (channel(record_wrapping="RecordIO"), "^inputs.train.record_wrapping: "),
    "shuffle": (channel(shuffle_config={"seed": 1}), "^inputs.train.shuffle_config: "),
    "attributes": (channel(attribute_names=["a"]), "^inputs.train.attribute_names: "),
    "target": (channel(target_attribute_name="a"), "^inputs.train.target_attribute_name: "),
    "groups": (channel(instance_groups=["a"]), "^inputs.train.instance_groups: "),
    "file-system": (
        {"inputs": {"train": {"file_system_id": "fs-1", "file_system_type": "EFS", "directory_path": "/d"}}},
        "^inputs.train: the local platform mounts no file systems",
    ),
    "toolkit-only": (
        {"distribution": {"smdistributed": {"dataparallel": {}}}},
        "^distribution: cloudtrain's runtime cannot launch ranks with 'smdistributed'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_fields_are_refused(case: str) -> None:
    fields, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message):
        body(**fields)


def test_fields_without_effect_are_accepted() -> None:
    fields = channel(compression="None", record_wrapping="None", content_type="text/csv")
    request = body(image_uri="team/image:1", **fields)
    assert request["channels"]["train"]["RecordWrapperType"] == "None"
    assert "instance_groups" not in request


def test_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert body()["python"] == sys.executable
    assert body(platform_options={"python": "./python"})["python"] == str(tmp_path / "python")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert body(platform_options={"python": "python"})["python"] == str(tmp_path / "python")


def test_groups_share_the_hosts() -> None:
    groups = [
        {"instance_group_name": "big", "instance_type": "ml.p4d", "instance_count": 1},
        {"instance_group_name": "small", "instance_type": "ml.c5", "instance_count": 2},
    ]
    request = body(instance_groups=groups)
    assert request["host_count"] == 3
    assert request["instance_groups"] == groups


def test_the_interpreter_may_be_below_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "python").touch(mode=0o755)
    assert body(platform_options={"python": "~/python"})["python"] == str(tmp_path / "python")


def test_a_missing_interpreter_is_shown_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidJob, match=f"there is no program '{tmp_path}/venv/bin/python'"):
        body(platform_options={"python": "venv/bin/python"})
    (tmp_path / "text").write_text("")
    with pytest.raises(InvalidJob, match=f"'{tmp_path}/text' is not an executable file"):
        body(platform_options={"python": "./text"})


def test_a_folder_is_refused_as_an_interpreter(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    folder.mkdir()
    with pytest.raises(
        InvalidJob, match=rf"'{folder}' is a folder, not a program\n  Set it to the path of a Python"
    ):
        body(platform_options={"python": str(folder)})
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    with pytest.raises(InvalidJob, match=rf"is a folder, not a program\n  .* in it: {folder}/bin/python$"):
        body(platform_options={"python": str(folder)})
