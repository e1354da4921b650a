"""Validates the command of the agent launcher."""

from __future__ import annotations

from cloudtrain.contract.agent import PRESETS, parse_command, preset_command
from cloudtrain.errors import InvalidJob
from cloudtrain.spec.distribution import Agent


def check_agent(agent: Agent) -> None:
    """Raises InvalidJob if it has no command, two, or one that cannot be parsed."""
    if bool(agent.command) == bool(agent.preset):
        raise InvalidJob(
            "distribution.agent: set either preset or command",
            hint=f"preset is one of {', '.join(PRESETS)}; command is the command line of any other launcher.",
        )
    if agent.options and not agent.preset:
        raise InvalidJob(
            "distribution.agent.options: they are added to a preset",
            hint="Write them into command, or set preset.",
        )
    if agent.preset == "ray" and agent.processes_per_host:
        raise InvalidJob(
            "distribution.agent.processes_per_host: the preset ray runs the script once, on the first host",
            hint="Leave it out, and choose the number of workers in the script (ScalingConfig).",
        )
    field = "options" if agent.preset else "command"
    try:
        parse_command(preset_command(agent.preset, agent.options) if agent.preset else agent.command)
    except ValueError as error:
        raise InvalidJob(
            f"distribution.agent.{field}: {error}",
            hint="docs/reference/launchers.md lists the placeholders. The command is split like a shell command.",
        ) from None
