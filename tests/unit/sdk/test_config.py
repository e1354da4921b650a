"""Defaults from the user's file, and the choice of a platform."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain import Estimator, InvalidJob
from cloudtrain.config import config_warnings, read_config
from cloudtrain.cost.known import config_prices
from cloudtrain.errors import UnknownPlatform
from cloudtrain.platforms import get_platform, platform_names
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import default_platform
from cloudtrain.testing import FakePlatform


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("print('x')")
    return str(tmp_path / "train.py")


def config(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(text)
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))


def test_arguments_override_the_defaults_of_the_file(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config("instance_count: 3\nmax_run: 60\nplatform: nosuch", tmp_path, monkeypatch)
    job = Estimator(script, instance_count=2, platform=FakePlatform()).prepare().job
    assert (job.instance_count, job.max_run) == (2, 60)
    with pytest.raises(UnknownPlatform, match="unknown platform 'nosuch'"):
        Estimator(script).prepare()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instance_cout: 2", "Did you mean 'instance_count'"),
        ("inputs: {}", "cannot have a default"),
        ("job_name: x", r"'job_name' cannot have a default\n  It describes one job only"),
        ("sorce: x", r"cannot have a default\n  (?!Did you mean 'source'\?)"),
        ("- 1", "not a mapping"),
    ],
)
def test_an_invalid_file(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    config(text, tmp_path, monkeypatch)
    with pytest.raises(InvalidJob, match=message):
        Estimator(script).prepare()


def test_a_named_file_that_is_missing(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", "/nosuch.yaml")
    with pytest.raises(InvalidJob, match=r"there is no file /nosuch\.yaml"):
        Estimator(script).prepare()


@pytest.mark.parametrize("text", ["", "\n\n", "# platform: local\n", "---\n# nothing\n...\n"])
def test_a_file_without_fields_has_no_defaults(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    config(text, tmp_path, monkeypatch)
    assert Estimator(script).prepare().job.max_run == 86400


def test_an_empty_variable_counts_as_unset(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert Estimator(script).prepare().job.max_run == 86400
    (tmp_path / "cloudtrain").mkdir()
    (tmp_path / "cloudtrain" / "config.yaml").write_text("max_run: 60")
    assert Estimator(script).prepare().job.max_run == 60


def test_the_platform_follows_the_instance_type(script: str) -> None:
    assert Estimator(script).prepare().platform.name == "local"
    assert default_platform(TrainingJob(instance_type="ml.p4d.24xlarge")) == "sagemaker"


def test_a_third_party_adds_a_platform_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "acme-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[cloudtrain.platforms]\nacme = cloudtrain.testing:FakePlatform\nbroken = nosuch_module:X\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"acme", "broken", "local"} <= set(platform_names())
    assert isinstance(get_platform("acme"), FakePlatform)
    with pytest.raises(UnknownPlatform, match="'broken' cannot be loaded: No module named 'nosuch_module'"):
        get_platform("broken")


def test_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", f"/{'x' * 300}")  # also root may not read it
    with pytest.raises(InvalidJob, match="cannot be read: File name too long") as refused:
        read_config()
    assert "CLOUDTRAIN_CONFIG" in str(refused.value.hint)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["named pipe", "folder"])
def test_only_a_regular_file_is_read(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "config.yaml")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "config.yaml"))
    for read in (read_config, config_prices):
        with pytest.raises(InvalidJob, match=r"config\.yaml cannot be read: it is not a regular file"):
            read()


def test_links_and_the_null_device_may_be_the_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config("max_run: 60", tmp_path, monkeypatch)
    (tmp_path / "link.yaml").symlink_to("config.yaml")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(tmp_path / "link.yaml"))
    assert read_config() == {"max_run": 60}
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", os.devnull)
    assert read_config() == {}


def test_a_config_file_with_secrets_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config("environment: {DB_PASS: x, LR: 1}", tmp_path, monkeypatch)
    path = tmp_path / "config.yaml"
    path.chmod(0o644)
    [warning] = config_warnings()
    assert "DB_PASS" in warning and f"chmod 600 {path}" in warning and "LR" not in warning
    path.chmod(0o600)
    assert config_warnings() == []
    config("environment: {LR: 1}", tmp_path, monkeypatch)
    assert config_warnings() == []


def test_a_file_that_other_users_can_change_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config("prices: {rows: []}", tmp_path, monkeypatch)
    path = tmp_path / "config.yaml"
    path.chmod(0o646)
    [warning] = config_warnings()
    assert warning == f"all users can change {path}, the prices and defaults of your jobs: chmod o-w {path}"
    path.chmod(0o644)
    assert config_warnings() == []
    if os.getuid() == 0:
        os.chown(path, 12345, 0)
        [warning] = config_warnings()
        assert warning.startswith(f"{path} belongs to another user")
