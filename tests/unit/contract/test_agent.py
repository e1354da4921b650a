"""Commands of the agent launcher."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloudtrain.contract.agent import PLACEHOLDERS, PRESETS, fill, parse_command, preset_command

VALUES = {name: name.upper() for name in PLACEHOLDERS}
PROGRAM = ["rank.py", "@agent"]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("launch --n {hosts}", ["launch", "--n", "HOSTS", "rank.py", "@agent"]),
        ("launch {program} --last", ["launch", "rank.py", "@agent", "--last"]),
        ("launch --x='a  {host}' \"{python}\"", ["launch", "--x=a  HOST", "PYTHON", "rank.py", "@agent"]),
        ("launch '{\"a\": 1}' {{host}} {{{host}}}", ["launch", '{"a": 1}', "{host}", "{{host}}", *PROGRAM]),
        ("launch $HOME `id` ;x", ["launch", "$HOME", "`id`", ";x", "rank.py", "@agent"]),
        ("{master_addr}:{master_port}", ["MASTER_ADDR:MASTER_PORT", "rank.py", "@agent"]),
    ],
)
def test_placeholders(command: str, line: list[str]) -> None:
    assert fill(parse_command(command), VALUES, PROGRAM) == line


def test_a_value_is_never_split() -> None:
    values = {**VALUES, "host": "a b $(id) {hosts} 'c'"}
    assert fill(parse_command("launch --on={host}"), values, PROGRAM)[1] == "--on=a b $(id) {hosts} 'c'"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("launch {host_rnk}", "there is no placeholder {host_rnk}. Did you mean 'host_rank'?"),
        ("launch {zzz}", "there is no placeholder {zzz}. Known: agent_port, host, host_names"),
        ("launch --p={program}", "{program} becomes several arguments"),
        ("launch 'x", "No closing quotation"),
        ("  ", "the command is empty"),
    ],
)
def test_commands_that_are_refused(command: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_command(command)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_end_with_the_program(preset: str) -> None:
    line = fill(parse_command(preset_command(preset, "--own '{host} x'")), VALUES, PROGRAM)
    assert line[-2:] == PROGRAM
    assert "HOST x" in line
    assert not [part for part in line if "{" in part]


def test_accelerate_starts_several_ranks_unless_options_set_the_number() -> None:
    assert "--multi_gpu" in preset_command("accelerate", "")
    assert "--multi_gpu" in preset_command("accelerate", "--mixed_precision bf16")
    for option in ("--use_fsdp", "--use-deepspeed", "--config_file=c.yaml", "--cpu", "--multi_gpu"):
        assert preset_command("accelerate", option).count("--multi_gpu") == int(option == "--multi_gpu")


def test_the_page_lists_every_placeholder_and_preset() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/launchers.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `\{(\w+)\}` \| (.+?) \|$", page, re.MULTILINE))
    assert rows == PLACEHOLDERS
    shown = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page[page.index("## agent") :], re.MULTILINE))
    assert shown == {name: preset_command(name, "") for name in PRESETS}
