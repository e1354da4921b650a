"""``cloudtrain list``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, json_option

PARALLEL_REQUESTS = 8
"""The number of jobs to describe at the same time: some platforms take long to respond."""


@click.command("list")
@click.option(
    "-n", "--limit", default=20, show_default=True, metavar="N", help="Maximum number of jobs to list."
)
@json_option
def command(limit: int, as_json: bool) -> None:
    """List the jobs submitted from this machine, newest first."""
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import suppress

    from cloudtrain.errors import PlatformError
    from cloudtrain.index import IndexEntry, list_jobs
    from cloudtrain.platforms import JobDescription, Platform, get_platform

    entries = list_jobs()[:limit]
    platforms: dict[str, Platform] = {}
    for name in {entry.platform for entry in entries}:
        with suppress(PlatformError):  # no longer installed
            platforms[name] = get_platform(name)

    def describe(entry: IndexEntry) -> JobDescription | None:
        platform = platforms.get(entry.platform)
        with suppress(PlatformError):  # the platform no longer knows the job
            return platform.describe(entry.name) if platform else None
        return None

    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        descriptions = pool.map(describe, entries)
    found = [(entry.name, entry.platform, found) for entry, found in zip(entries, descriptions, strict=True)]
    if as_json:
        unknown = {"status": "Unknown"}
        echo_json(
            [
                description.to_dict() if description else {"name": name, "platform": platform, **unknown}
                for name, platform, description in found
            ]
        )
        return
    from cloudtrain.cli._view import show_jobs

    show_jobs(found)
