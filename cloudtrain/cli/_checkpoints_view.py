"""Output of ``cloudtrain checkpoints`` on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from cloudtrain.checkpoint.inspect import CheckpointInfo, Damage, PrunePlan
from cloudtrain.checkpoint.tensors.framework import TensorSpec
from cloudtrain.cli._job_view import shown
from cloudtrain.contract.text import escape_line

WIDE = 200
"""Columns if the output is not a terminal, so that nothing is truncated."""

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def show_list(uri: str, infos: Sequence[CheckpointInfo]) -> None:
    """One row per checkpoint, damaged ones in red."""
    if not infos:
        click.echo(f"No checkpoints in {uri}", err=True)
        return
    table = _table("STEP", "SAVED", "SIZE", "NEW", "METRICS", "RANKS", "JOB", "REFERS TO")
    for info in infos:
        table.add_row(*map(shown, _row(info)), style="red" if info.problem else "")
    _console().print(table)


def _row(info: CheckpointInfo) -> tuple[str, ...]:
    if info.problem or info.manifest is None:
        return (str(info.step), info.problem if info.newer else f"damaged: {info.problem}")
    manifest = info.manifest
    return (
        str(info.step),
        _age(manifest.time),
        decimal(info.size),
        decimal(info.added),
        _metrics(info),
        str(manifest.world_size),
        manifest.job or "",
        ", ".join(map(str, info.references)),
    )


def show_one(uri: str, info: CheckpointInfo, specs: Mapping[str, TensorSpec]) -> None:
    """The details of one checkpoint."""
    console = _console()
    console.print(
        Text(f"step {info.step} in {uri}", style="bold red" if info.problem else "bold"), soft_wrap=True
    )
    for label, value in _facts(info):
        console.print(
            Text(f"{label:<10} ", style="dim").append(shown(value, style="not dim")), soft_wrap=True
        )
    table = _table("TENSOR", "DTYPE", "SHAPE", "SIZE")
    for name, spec in specs.items():
        shape = "x".join(map(str, spec.shape)) or "scalar"
        table.add_row(shown(name), shown(spec.dtype), shape, decimal(spec.nbytes))
    console.print(table)


def _facts(info: CheckpointInfo) -> Iterator[tuple[str, str]]:
    if info.problem:
        yield "damaged", info.problem
    if info.manifest is None:
        return
    manifest = info.manifest
    saved = datetime.fromtimestamp(manifest.time)
    yield "saved", f"{saved:%Y-%m-%d %H:%M:%S}, {_age(manifest.time)}"
    yield "size", f"{decimal(info.size)} in {len(info.objects)} objects, {decimal(info.added)} of it new"
    if info.references:
        yield "refers to", f"step {', '.join(map(str, info.references))}"
    if info.metrics:
        yield "metrics", _metrics(info)
    yield "ranks", str(manifest.world_size)
    for label, value in (("job", manifest.job), ("commit", manifest.git_commit)):
        if value:
            yield label, value
    yield "made by", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())


def show_damage(uri: str, infos: Sequence[CheckpointInfo], damage: Sequence[Damage]) -> None:
    """Every damaged object, or that nothing is damaged."""
    if not damage:
        count = f"{len(infos)} checkpoint{'' if len(infos) == 1 else 's'}"
        click.echo(f"{count} in {uri}: every byte is as it was saved")
        return
    for found in damage:
        click.secho(escape_line(f"step {found.step}: {found.key} {found.problem}"), fg="red")


def show_plan(uri: str, plan: PrunePlan) -> None:
    """The checkpoints and objects that will be deleted."""
    if plan.is_empty:
        click.echo(f"Nothing to delete in {uri}")
        return
    click.echo(f"To be deleted in {uri}, {decimal(plan.freed)}:")
    for step in plan.steps:
        click.echo(f"  step {step}")
    for orphan in (*plan.orphans, *plan.folder_orphans.files):
        click.echo(escape_line(f"  {orphan.key}, {decimal(orphan.size)}"))
    if plan.folder_orphans.folders:
        click.echo(f"  empty folders: {len(plan.folder_orphans.folders)}")


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(
            heading, no_wrap=True, justify="right" if heading in ("STEP", "SIZE", "NEW") else "left"
        )
    return table


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDE, highlight=False)


def _metrics(info: CheckpointInfo) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in info.metrics.items())


def _age(saved: float) -> str:
    """How long ago, in the largest unit in which it is at least 1."""
    seconds = max(0.0, time.time() - saved)
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), _UNITS[-1])
    return f"{seconds / length:.0f} {unit} ago"
