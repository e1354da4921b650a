"""``cloudtrain list``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, json_option


@click.command("list")
@click.option("-n", "--limit", default=20, show_default=True, help="How many jobs at most.")
@json_option
def command(limit: int, as_json: bool) -> None:
    """Show the jobs submitted from this machine, the newest first."""
    from cloudtrain.errors import PlatformError
    from cloudtrain.index import list_jobs
    from cloudtrain.platforms import JobDescription, get_platform

    found: list[tuple[str, str, JobDescription | None]] = []
    for entry in list_jobs()[:limit]:
        try:
            description = get_platform(entry.platform).describe(entry.name)
        except PlatformError:
            description = None  # the platform has forgotten it, or is not installed any more
        found.append((entry.name, entry.platform, description))
    if as_json:
        forgotten = {"status": "Unknown"}
        echo_json(
            [
                description.to_dict() if description else {"name": name, "platform": platform, **forgotten}
                for name, platform, description in found
            ]
        )
        return
    from cloudtrain.cli._view import show_jobs

    show_jobs(found)
