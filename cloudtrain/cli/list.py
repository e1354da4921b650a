"""``cloudtrain list``."""

from __future__ import annotations

import click

from cloudtrain.cli._options import echo_json, json_option

AT_ONCE = 8
"""Jobs that are asked for at the same time: some platforms are far away."""


@click.command("list")
@click.option("-n", "--limit", default=20, show_default=True, help="How many jobs at most.")
@json_option
def command(limit: int, as_json: bool) -> None:
    """Show the jobs submitted from this machine, the newest first."""
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import suppress

    from cloudtrain.errors import PlatformError
    from cloudtrain.index import IndexEntry, list_jobs
    from cloudtrain.platforms import JobDescription, Platform, get_platform

    entries = list_jobs()[:limit]
    platforms: dict[str, Platform] = {}
    for name in {entry.platform for entry in entries}:
        with suppress(PlatformError):  # not installed any more
            platforms[name] = get_platform(name)

    def describe(entry: IndexEntry) -> JobDescription | None:
        platform = platforms.get(entry.platform)
        with suppress(PlatformError):  # it may have forgotten the job
            return platform.describe(entry.name) if platform else None
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        descriptions = pool.map(describe, entries)
    found = [(entry.name, entry.platform, told) for entry, told in zip(entries, descriptions, strict=True)]
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
