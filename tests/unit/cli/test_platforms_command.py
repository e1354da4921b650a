"""``cloudtrain platforms`` lists the platforms and their options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.cli.platforms import SUMMARIES
from cloudtrain.errors import UnknownPlatform
from cloudtrain.platforms.common.platform_options import option_names
from cloudtrain.platforms.registry import BUILT_IN, OTHER_NAMES, get_platform


def test_every_platform_has_a_summary_and_options() -> None:
    assert {*SUMMARIES} == {*BUILT_IN}
    shown = CliRunner().invoke(cli, ["platforms"]).stdout
    for name, summary in SUMMARIES.items():
        assert f"{name} " in shown
        assert summary in shown
        assert option_names(name)


def test_what_shows_a_platform_is_named_without_asking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> dict[str, str]:
        rows = json.loads(CliRunner().invoke(cli, ["platforms", "--json"]).stdout)
        return {row["name"]: row["found"] for row in rows if row["found"]}

    for name in (
        "KUBERNETES_SERVICE_HOST",
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("KUBECONFIG", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, f"{tmp_path}/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found() == {"local": "this machine"}
    assert "Also found here" not in CliRunner().invoke(cli, ["doctor"]).stderr
    for program in ("podman", "bsub"):
        (tmp_path / program).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    (tmp_path / "AWS_CONFIG_FILE").touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{tmp_path}/clusters")
    (tmp_path / "clusters").touch()
    config = tmp_path / "config.yaml"
    config.write_text("platform_options: {hosts: [one, two]}\n")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    assert found() == {
        "container": "podman",
        "hosts": "platform_options of the config file",
        "kubernetes": f"{tmp_path}/clusters",
        "local": "this machine",
        "lsf": "bsub",
        "sagemaker": f"{tmp_path}/AWS_CONFIG_FILE",
    }
    more = CliRunner().invoke(cli, ["doctor"]).stderr
    assert (
        "Also found here: hosts (platform_options of the config file), container (podman), lsf (bsub), "
        in more
    )


@pytest.mark.parametrize("options", ["5", "[[1]]"])
def test_what_cannot_be_looked_at_shows_no_platform(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No path that `os.stat` refuses, as in another user's folder, and no option of a wrong type, is an error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", f"~no-such-user/config:{tmp_path}/{'long' * 100}")
    config = tmp_path / "config.yaml"
    config.write_text(f"platform_options: {options}\n")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    shown = CliRunner().invoke(cli, ["platforms", "--json"])
    assert shown.exit_code == 0, shown.exception
    found = {one["name"]: one["found"] for one in json.loads(shown.stdout)}
    assert (found["kubernetes"], found["hosts"]) == ("", "")


def test_doctor_names_no_other_platform_that_is_the_one_it_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default of the config file is the one it checks."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    config = tmp_path / "config.yaml"
    config.write_text("platform: container\n")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    more = CliRunner().invoke(cli, ["doctor"]).stderr
    assert "Also found here: local (this machine)" in more
    assert "container (" not in more


def test_the_options_of_a_platform() -> None:
    shown = CliRunner().invoke(cli, ["platforms", "container"]).stdout
    assert [line.split() for line in shown.splitlines() if line.startswith(("pull", "gpus"))] == [
        ["gpus", "a", "whole", "number", "or", "all", "or", "a", "list"],
        ["pull", "always,", "missing", "or", "never", '"missing"'],
    ]
    found = json.loads(CliRunner().invoke(cli, ["platforms", "container", "--json"]).stdout)
    assert {"name": "new_privileges", "values": "true or false", "default": False} in found


def test_an_unknown_platform_is_refused() -> None:
    error = CliRunner().invoke(cli, ["platforms", "slrum"]).exception
    assert isinstance(error, UnknownPlatform)
    assert "slurm" in error.hint


@pytest.mark.parametrize("name, meant", {
    "aws": "sagemaker", "docker": "container", "k8s": "kubernetes", "K8S": "kubernetes", "LOCAL": "local",
    "mpi": "hosts", "podman": "container", "ssh": "hosts",
}.items())  # fmt: skip
def test_what_a_new_user_calls_a_platform(name: str, meant: str) -> None:
    with pytest.raises(UnknownPlatform) as caught:
        get_platform(name)
    advice = f"Did you mean {meant!r}? To see what each one is: cloudtrain platforms"
    assert (caught.value.message, caught.value.hint) == (f"unknown platform {name!r}", advice)


def test_a_scheduler_that_has_no_platform() -> None:
    with pytest.raises(UnknownPlatform) as caught:
        get_platform("sge")
    assert caught.value.hint.startswith("Known: cobalt, container, hosts, ")


def test_other_names_are_of_platforms() -> None:
    assert set(OTHER_NAMES) <= set(BUILT_IN)
    assert not {name for names in OTHER_NAMES.values() for name in names} & set(BUILT_IN)
