"""``cloudtrain clean``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import echo_json, json_option

if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.leftovers import Leftover

_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def _age(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float | None:
    """``12h``, ``30d``, ``8w`` -> seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([hdw])", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not like 12h, 30d or 8w")
    return int(match[1]) * _SECONDS[match[2]]


@click.command("clean")
@click.option(
    "--jobs-older-than",
    "age",
    callback=_age,
    metavar="AGE",
    help="Also the folders of jobs on this machine that ended longer ago (30d), with the models that lie in them.",
)
@click.option("--caches", is_flag=True, help="Also packed sources and environments. Not while a job runs.")
@click.option("--engine", help="Look only there: docker, podman or a URL.  [default: all that answer]")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
def command(age: float | None, caches: bool, engine: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove what jobs on this machine have left.

    Containers and networks of jobs whose supervisor was killed are always removed; those of others, and of jobs
    that run, never.
    """
    from cloudtrain.errors import PlatformError

    freed = 0
    removed: list[dict[str, object]] = []
    failed: list[dict[str, object]] = []
    for leftover in _leftovers(age, caches, engine):
        record = {"kind": leftover.kind, "name": leftover.name, "size": leftover.size}
        try:
            if not dry_run:
                leftover.remove()
        except (PlatformError, OSError) as error:
            failed.append({**record, "error": str(error)})
            click.echo(f"{leftover.kind} {leftover.name} cannot be removed: {error}", err=True)
            continue
        removed.append(record)
        freed += leftover.size
        if not as_json:
            click.echo(_line(leftover))
    if as_json:
        echo_json({"dry_run": dry_run, "freed": freed, "removed": removed, "failed": failed})
    else:
        from rich.filesize import decimal

        would = "would be " if dry_run else ""
        click.echo(f"{would}{decimal(freed)} freed" if removed else "nothing is left behind")
    if failed:
        raise click.exceptions.Exit(1)


def _leftovers(age: float | None, caches: bool, choice: str | None) -> Iterator[Leftover]:
    import time
    from importlib.util import find_spec

    from cloudtrain.engine.client import EngineClient
    from cloudtrain.engine.engine import find_engine, find_engines
    from cloudtrain.platforms.container.leftovers import leftovers_in
    from cloudtrain.platforms.supervised.leftovers import old_jobs, unused_caches

    if choice:
        yield from leftovers_in(EngineClient.connect(find_engine(choice)))
    elif find_spec("docker"):  # without it nothing was ever started in an engine
        engines = find_engines()
        for engine in engines:
            yield from leftovers_in(EngineClient.connect(engine))
        if not engines:
            click.echo("no container engine answers: what it may have was not looked for", err=True)
    if age is not None:
        yield from old_jobs(time.time() - age)
    if caches:
        yield from unused_caches()


def _line(leftover: Leftover) -> str:
    from rich.filesize import decimal

    size = f"  {decimal(leftover.size)}" if leftover.size else ""
    return f"{leftover.kind}  {leftover.name}{size}"
