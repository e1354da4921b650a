"""``cloudtrain platforms`` lists the platforms and their options."""

from __future__ import annotations

import json

from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.cli.platforms import SUMMARIES
from cloudtrain.errors import UnknownPlatform
from cloudtrain.platforms.common.platform_options import option_names
from cloudtrain.platforms.registry import BUILT_IN


def test_every_platform_has_a_summary_and_options() -> None:
    assert {*SUMMARIES} == {*BUILT_IN}
    shown = CliRunner().invoke(cli, ["platforms"]).stdout
    for name, summary in SUMMARIES.items():
        assert f"{name} " in shown
        assert summary in shown
        assert option_names(name)


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
