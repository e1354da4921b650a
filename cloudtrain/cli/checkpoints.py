"""``cloudtrain checkpoints``: list, verify, download and delete the checkpoints of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import complete_job_or_file, json_option
from cloudtrain.cli._output import echo_json, print_table, shown, table_console
from cloudtrain.contract.text import escape_line

if TYPE_CHECKING:
    from cloudtrain.checkpoint.inspect import CheckpointInfo, Damage, PrunePlan
    from cloudtrain.checkpoint.tensors.framework import TensorSpec
    from cloudtrain.storage import Store


place_argument = click.argument("place", shell_complete=complete_job_or_file)
step_option = click.option(
    "--step", type=click.IntRange(min=0), help="The step to use.  [default: the latest]"
)


@click.group("checkpoints")
def command() -> None:
    """List, verify, download and delete the checkpoints of a run.

    PLACE is the name of a job, an s3://, gs:// or file:// URI, or a folder.

    \b
    cloudtrain checkpoints list s3://bucket/run
    cloudtrain checkpoints verify JOB
    """


@command.command("list")
@place_argument
@json_option
def list_(place: str, as_json: bool) -> None:
    """List the checkpoints in PLACE. Reads only their manifests."""
    from cloudtrain.checkpoint.inspect import list_checkpoints

    store = _open(place)
    infos = list_checkpoints(store)
    if as_json:
        echo_json([info.to_dict() for info in infos])
        return
    show_list(store.uri, infos)


@command.command()
@place_argument
@step_option
@json_option
def show(place: str, step: int | None, as_json: bool) -> None:
    """Show one checkpoint in PLACE and its tensors."""
    from cloudtrain.checkpoint.inspect import find, tensors

    store = _open(place)
    info = find(store, "latest" if step is None else step)
    specs = tensors(store, info)
    if as_json:
        echo_json({**info.to_dict(), "tensors": {name: spec._asdict() for name, spec in specs.items()}})
        return
    show_one(store.uri, info, specs)


@command.command()
@place_argument
@click.option("--step", type=click.IntRange(min=0), help="Verify only this step.  [default: all]")
@json_option
def verify(place: str, step: int | None, as_json: bool) -> None:
    """Read the checkpoints in PLACE and compare all hashes. Exits with status 1 if anything is damaged."""
    from cloudtrain.checkpoint import inspect
    from cloudtrain.cli._output import bytes_bar
    from cloudtrain.errors import CheckpointError

    store = _open(place)
    infos = inspect.list_checkpoints(store) if step is None else [inspect.find(store, step)]
    if not infos:
        raise CheckpointError(f"{store.uri} has no checkpoints")
    total = sum({entry: entry.size for info in infos for entry in info.objects}.values())
    with bytes_bar("verify", total, quiet=as_json) as on_bytes:
        damage = inspect.verify(store, infos, on_bytes)
    if as_json:
        echo_json(
            {"uri": store.uri, "steps": [info.step for info in infos], "damage": list(map(vars, damage))}
        )
    else:
        show_damage(store.uri, infos, damage)
    if damage:
        raise SystemExit(1)


@command.command()
@place_argument
@step_option
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to copy it to. A Checkpointer can restore it from there.",
)
@json_option
def download(place: str, step: int | None, folder: Path, as_json: bool) -> None:
    """Copy one checkpoint in PLACE to this machine, verifying every byte."""
    from cloudtrain.checkpoint import inspect
    from cloudtrain.cli._output import bytes_bar

    store = _open(place)
    info = inspect.find(store, "latest" if step is None else step)
    with bytes_bar("download", info.size, quiet=as_json) as on_bytes:
        inspect.download(store, info, folder, on_bytes)
    if as_json:
        echo_json({"step": info.step, "folder": str(folder), "size": info.size})
    else:
        click.echo(f"step {info.step} is in {folder}")


@command.command()
@place_argument
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N", help="Delete all but the N newest intact checkpoints."
)
@click.option("--leftovers", is_flag=True, help="Delete the leftovers of interrupted saves.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def prune(place: str, keep: int | None, leftovers: bool, yes: bool, as_json: bool) -> None:
    """Delete checkpoints in PLACE that are no longer needed, after showing which.

    Objects to which a remaining checkpoint refers are kept. With --json nothing is deleted without --yes.
    """
    from cloudtrain.checkpoint.inspect import plan_pruning, prune as apply_plan

    if keep is None and not leftovers:
        raise click.UsageError("specify what to delete: --keep N, --leftovers, or both")
    store = _open(place)
    plan = plan_pruning(store, keep=keep, leftovers=leftovers)
    if as_json:
        echo_json({"uri": store.uri, "deleted": yes, **plan.to_dict()})
    else:
        show_plan(store.uri, plan)
    if not plan.is_empty and (yes or (not as_json and click.confirm("Delete them?", default=False))):
        apply_plan(store, plan)


def _open(place: str) -> Store:
    """The store of a URI, of the job with that name, or of a folder.

    Raises NotFound if there is none, or if the job has no checkpoints.
    """
    from cloudtrain.errors import NotFound
    from cloudtrain.storage import open_store

    if "://" in place:
        return open_store(place)
    if "/" not in place:
        from cloudtrain.index import find_job

        if find_job(place):
            return open_store(_checkpoints_of(place))
    folder = Path(place)
    if not folder.is_dir():
        raise NotFound(
            f"there is no job or folder {place}", hint="Give the name of a job, a folder, or an s3:// URI."
        )
    return open_store(folder.absolute().as_uri())


def _checkpoints_of(job: str) -> str:
    from cloudtrain.errors import NotFound
    from cloudtrain.job import Job

    uri = Job.attach(job).describe().checkpoint_uri
    if uri is None:
        raise NotFound(f"job {job} does not keep checkpoints", hint="Set its checkpoint_s3_uri.")
    return uri


_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def show_list(uri: str, infos: Sequence[CheckpointInfo]) -> None:
    """Print one row per checkpoint, damaged ones in red."""
    if not infos:
        click.echo(f"No checkpoints in {uri}. Where a job saves them: cloudtrain describe JOB", err=True)
        return
    headings = ("STEP", "SAVED", "SIZE", "NEW", "METRICS", "RANKS", "JOB", "REFERS TO")
    colours = ("red" if info.problem else None for info in infos)
    print_table(headings, map(_row, infos), right=("STEP", "SIZE", "NEW"), colours=colours)


def _row(info: CheckpointInfo) -> tuple[str, ...]:
    if info.problem or info.manifest is None:
        return (str(info.step), info.problem if info.newer else f"damaged: {info.problem}")
    manifest = info.manifest
    return (
        str(info.step),
        _age(manifest.time),
        _size(info.size),
        _size(info.added),
        _metrics(info),
        str(manifest.world_size),
        manifest.job or "",
        ", ".join(map(str, info.references)),
    )


def show_one(uri: str, info: CheckpointInfo, specs: Mapping[str, TensorSpec]) -> None:
    """Print the details of one checkpoint."""
    from rich.text import Text

    console = table_console()
    console.print(
        Text(f"step {info.step} in {uri}", style="bold red" if info.problem else "bold"), soft_wrap=True
    )
    for label, value in _facts(info):
        console.print(
            Text(f"{label:<10} ", style="dim").append(shown(value, style="not dim")), soft_wrap=True
        )
    rows = (
        (name, spec.dtype, "x".join(map(str, spec.shape)) or "scalar", _size(spec.nbytes))
        for name, spec in specs.items()
    )
    print_table(("TENSOR", "DTYPE", "SHAPE", "SIZE"), rows, right=("SIZE",))


def _facts(info: CheckpointInfo) -> Iterator[tuple[str, str]]:
    if info.problem:
        yield "damaged", info.problem
    if info.manifest is None:
        return
    manifest = info.manifest
    saved = datetime.fromtimestamp(manifest.time)
    yield "saved", f"{saved:%Y-%m-%d %H:%M:%S}, {_age(manifest.time)}"
    yield "size", f"{_size(info.size)} in {len(info.objects)} objects, {_size(info.added)} of it new"
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
    """Print every damaged object, or that nothing is damaged."""
    if not damage:
        count = f"{len(infos)} checkpoint{'' if len(infos) == 1 else 's'}"
        click.echo(f"{count} in {uri}: every byte is as it was saved")
        return
    for found in damage:
        click.secho(escape_line(f"step {found.step}: {found.key} {found.problem}"), fg="red")


def show_plan(uri: str, plan: PrunePlan) -> None:
    """Print the checkpoints and objects that will be deleted."""
    if plan.is_empty:
        click.echo(f"Nothing to delete in {uri}")
        return
    click.echo(f"To be deleted in {uri}, {_size(plan.freed)}:")
    for step in plan.steps:
        click.echo(f"  step {step}")
    for orphan in (*plan.orphans, *plan.folder_orphans.files):
        click.echo(escape_line(f"  {orphan.key}, {_size(orphan.size)}"))
    if plan.folder_orphans.folders:
        click.echo(f"  empty folders: {len(plan.folder_orphans.folders)}")


def _metrics(info: CheckpointInfo) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in info.metrics.items())


def _age(saved: float) -> str:
    """How long ago, in the largest unit in which it is at least 1."""
    seconds = max(0.0, time.time() - saved)
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), _UNITS[-1])
    return f"{seconds / length:.0f} {unit} ago"


def _size(count: int) -> str:
    from rich.filesize import decimal

    return decimal(count)
