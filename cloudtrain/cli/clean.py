"""``cloudtrain clean``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json

if TYPE_CHECKING:
    from cloudtrain.platforms import Platform
    from cloudtrain.platforms.supervised.leftovers import JobEnds, Leftover

_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def _age(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """An age such as ``12h``, ``30d`` or ``8w`` in seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([hdw])", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age; write 12h, 30d or 8w")
    return int(match[1]) * _SECONDS[match[2]]


@click.command("clean")
@click.option(
    "--jobs-older-than",
    "age",
    callback=_age,
    metavar="AGE",
    help="Also remove the folders of jobs that ended longer ago than AGE (12h, 30d, 8w), with their models, and the "
    "checkpoints that sweeps keep on this machine.",
)
@click.option(
    "--caches",
    is_flag=True,
    help="Also remove packed sources and all environments with requirements, unless a job runs.",
)
@click.option(
    "--engine",
    metavar="ENGINE",
    help="Container engine to clean: docker, podman or a URL.  [default: all that respond]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
@json_option
def command(age: float | None, caches: bool, engine: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove what jobs left behind on this machine.

    Without options, removes the containers, networks and mounts of jobs whose supervisor was killed, temporary files
    of submissions that were killed more than a day ago, and environments with requirements that are incomplete or that
    no job has used for 30 days. Never touches running jobs, or containers that cloudtrain did not start.

    \b
    Examples:
      cloudtrain clean --dry-run
      cloudtrain clean --jobs-older-than 30d --caches
    """
    from functools import cache

    from cloudtrain.errors import PlatformError
    from cloudtrain.history.predictions import forget
    from cloudtrain.platforms import get_platform
    from cloudtrain.platforms.supervised.leftovers import JobEnds

    freed = 0
    removed: list[dict[str, object]] = []
    failed: list[dict[str, object]] = []
    platforms = cache(get_platform)
    ends = JobEnds(lambda platform, name: platforms(platform).describe(name))
    for leftover in _leftovers(age, caches, engine, ends):
        record = {"kind": leftover.kind, "name": leftover.name, "size": leftover.size}
        try:
            if not dry_run:
                if leftover.kind == "job":
                    _remember(platforms(leftover.platform), leftover.name)
                leftover.remove()
                if leftover.kind == "job":
                    forget(leftover.name, leftover.platform)
        except (PlatformError, OSError) as error:
            failed.append({**record, "error": str(error)})
            click.echo(f"{leftover.kind} {leftover.name} cannot be removed: {error}", err=True)
            continue
        removed.append(record)
        freed += leftover.size
        if not as_json:
            click.echo(_line(leftover))
    for job, reason in ends.unknown.items():
        click.echo(
            f"{job} is kept, and what it may use: it is unknown whether it has ended: {reason}", err=True
        )
    if as_json:
        kept = [{"job": job, "reason": reason} for job, reason in ends.unknown.items()]
        echo_json({"dry_run": dry_run, "freed": freed, "removed": removed, "failed": failed, "unknown": kept})
    else:
        from rich.filesize import decimal

        would = "would be " if dry_run else ""
        click.echo(f"{would}{decimal(freed)} freed" if removed else "nothing to remove")
    if failed:
        raise click.exceptions.Exit(1)


def _remember(platform: Platform, job_name: str) -> None:
    """Record in the history how a job ended, before its records are removed."""
    from contextlib import suppress

    from cloudtrain.errors import CloudtrainError
    from cloudtrain.history.refresh import keep_end

    with suppress(CloudtrainError, OSError):  # its last record in the history remains
        keep_end(platform, platform.describe(job_name))


def _leftovers(age: float | None, caches: bool, choice: str | None, ends: JobEnds) -> Iterator[Leftover]:
    import time
    from importlib.util import find_spec

    from cloudtrain.engine.client import EngineClient
    from cloudtrain.engine.engine import find_engine, find_engines
    from cloudtrain.platforms.container.leftovers import leftovers_in
    from cloudtrain.platforms.supervised.leftovers import (
        UNUSED_SECONDS,
        abandoned_mounts,
        environments,
        half_made,
        old_jobs,
        stale_temporaries,
        unused_caches,
    )
    from cloudtrain.sweep.leftovers import old_checkpoints

    if choice:
        yield from leftovers_in(EngineClient.connect(find_engine(choice)))
    elif find_spec("docker"):  # without this package no job ran in an engine
        engines = find_engines()
        for engine in engines:
            yield from leftovers_in(EngineClient.connect(engine))
        if not engines:
            click.echo("no container engine responds; containers and networks were not checked", err=True)
    yield from abandoned_mounts(ends)
    yield from stale_temporaries()
    yield from half_made()
    if age is not None:
        yield from old_jobs(time.time() - age, ends)
        yield from old_checkpoints(time.time() - age, ends)
    now = time.time()
    yield from environments(before=now if caches else now - UNUSED_SECONDS, ends=ends)
    if caches:
        yield from unused_caches(ends)


def _line(leftover: Leftover) -> str:
    from rich.filesize import decimal

    size = f"  {decimal(leftover.size)}" if leftover.size else ""
    return f"{leftover.kind}  {leftover.name}{size}"
