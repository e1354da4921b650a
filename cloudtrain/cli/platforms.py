"""``cloudtrain platforms``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from cloudtrain.cli._options import complete_platform, json_option
from cloudtrain.cli._output import echo_json, print_table

SUMMARIES = {
    "cobalt": "a cluster with Cobalt",
    "container": "Docker or Podman on this machine, one container for each host",
    "hosts": "a list of machines, through ssh",
    "kubernetes": "a Kubernetes cluster: Job, JobSet, TrainJob or MPIJob",
    "local": "processes on this machine",
    "lsf": "a cluster with IBM Spectrum LSF",
    "pbs": "a cluster with PBS Professional or OpenPBS",
    "sagemaker": "Amazon SageMaker, also through queues of AWS Batch",
    "slurm": "a cluster with Slurm, from its login node or from your laptop",
    "torque": "a cluster with Torque",
}
"""Where the jobs of each built-in platform run."""

INTERNAL = ("rendering_reason",)
"""Options that cloudtrain sets itself."""


@click.command("platforms")
@click.argument("name", required=False, shell_complete=complete_platform)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the platforms, or the options of the platform NAME.

    FOUND HERE is the program, variable or file that shows that you can use a platform. Check one with cloudtrain
    doctor --platform NAME. Set an option with --set platform_options.OPTION=VALUE, or below platform_options in a
    job file.

    \b
    Examples:
      cloudtrain platforms
      cloudtrain platforms slurm
    """
    if name is None:
        from cloudtrain.platforms import platform_names
        from cloudtrain.platforms.reach import found_here

        here = found_here()
        rows = [
            (known, here.get(known, ""), SUMMARIES.get(known, "of an installed package"))
            for known in platform_names()
        ]
        if as_json:
            echo_json([{"name": known, "found": sign, "summary": text} for known, sign, text in rows])
            return
        print_table(("PLATFORM", "FOUND HERE", "JOBS RUN ON"), rows)
        return
    options = list(_options(name))
    if as_json:
        echo_json([{"name": one, "values": values, "default": value} for one, values, value in options])
        return
    shown = (
        (one, values, "" if value in (None, [], {}) else json.dumps(value)) for one, values, value in options
    )
    print_table(("OPTION", "VALUES", "DEFAULT"), shown)


def _options(platform: str) -> Iterator[tuple[str, str, Any]]:
    """The name, values and default of each option. Raises UnknownPlatform, CloudtrainError."""
    import msgspec

    from cloudtrain.errors import CloudtrainError
    from cloudtrain.platforms import platform_names
    from cloudtrain.platforms.common.platform_options import options_of
    from cloudtrain.platforms.registry import unknown_platform
    from cloudtrain.spec.explain import expected

    struct = options_of(platform)
    if struct is None:
        if platform not in platform_names():
            raise unknown_platform(platform)
        raise CloudtrainError(
            f"the options of {platform} are not known here: the platform comes from an installed package",
            hint="See the documentation of that package.",
        )
    kinds = {field.name: field.type for field in msgspec.inspect.type_info(struct).fields}  # type: ignore[attr-defined]
    for field in msgspec.structs.fields(struct):
        if field.name not in INTERNAL:
            value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            yield (
                field.name,
                expected(kinds[field.name]).partition(" that matches ")[0],
                msgspec.to_builtins(value),
            )
