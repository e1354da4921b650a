"""``cloudtrain s3``: ``cp``, ``ls``, ``rm`` and ``sync``, and the commands of the local server."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._errors import INTERRUPTED
from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json

if TYPE_CHECKING:
    from cloudtrain.data.plan import Copy, Deletion, Plan
    from cloudtrain.storage import ObjectInfo
    from cloudtrain.testing import S3Daemon


def _use_local_server(_context: click.Context, _parameter: click.Parameter, chosen: bool) -> None:
    """Set the AWS variables of this process to those of the local server."""
    if chosen:
        os.environ.update(running_server().account.env)


_local_server = click.option(
    "--local-server",
    is_flag=True,
    expose_value=False,
    callback=_use_local_server,
    help="Use the server that `cloudtrain s3 start` runs, instead of your AWS settings.",
)
_exclude = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out files that match, such as '*.tmp'. Repeatable.",
)
_include = click.option(
    "--include", multiple=True, metavar="PATTERN", help="But not those that match this pattern. Repeatable."
)
_dryrun = click.option("--dryrun", "--dry-run", is_flag=True, help="Print what would be done; do nothing.")
_quiet = click.option("--quiet", is_flag=True, help="Print only errors.")
_force = click.option("--force", is_flag=True, help="Also delete what is refused as a likely mistake.")
_shared = (_local_server, _exclude, _include, _dryrun, _quiet, json_option)


def _with_shared(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that cp, rm and sync share."""
    for option in reversed(_shared):
        function = option(function)
    return function


@click.group("s3")
def command() -> None:
    """Copy data to and from S3, and run a local S3 server.

    cp, ls, rm and sync work like those of the AWS command line. They use your AWS settings (AWS_PROFILE,
    AWS_ENDPOINT_URL_S3, ...); with --local-server, the server that `cloudtrain s3 start` runs.

    \b
    Examples:
      cloudtrain s3 cp --recursive data s3://bucket/data
      cloudtrain s3 sync --delete data s3://bucket/data
      cloudtrain s3 start
      eval "$(cloudtrain s3 env)"
      cloudtrain s3 make-bucket data
    """


@command.command()
@click.argument("source")
@click.argument("target")
@click.option("--recursive", is_flag=True, help="Copy all files below the folder SOURCE.")
@_with_shared
def cp(source: str, target: str, recursive: bool, **options: Any) -> None:
    """Copy a file, or a folder with --recursive. SOURCE or TARGET, or both, are in S3.

    A file that is copied to a folder (data/, a bucket, an existing folder) keeps its name.

    \b
    Examples:
      cloudtrain s3 cp train.csv s3://bucket/data/
      cloudtrain s3 cp --recursive s3://bucket/data data
    """
    from cloudtrain.data.location import Location
    from cloudtrain.data.plan import plan_copy

    _run(
        plan_copy(Location.parse(source), Location.parse(target), _filter(options), recursive=recursive),
        options,
    )


@command.command()
@click.argument("source")
@click.argument("target")
@click.option("--delete", is_flag=True, help="Delete files of TARGET that SOURCE does not have.")
@click.option("--size-only", is_flag=True, help="Compare only the sizes of files, not their times.")
@_force
@_with_shared
def sync(source: str, target: str, delete: bool, size_only: bool, force: bool, **options: Any) -> None:
    """Copy the files of the folder SOURCE that TARGET lacks, or that differ in size or are newer.

    A download gives files the time of their object. Excluded files are neither copied nor deleted. With --delete,
    deleting is refused if SOURCE is empty, or TARGET is a whole bucket, a git repository or your home folder: see
    --force.

    \b
    Examples:
      cloudtrain s3 sync data s3://bucket/data
      cloudtrain s3 sync --delete --dryrun s3://bucket/data data
    """
    from cloudtrain.data.location import Location
    from cloudtrain.data.plan import plan_sync

    plan = plan_sync(
        Location.parse(source),
        Location.parse(target),
        _filter(options),
        delete=delete,
        size_only=size_only,
        force=force,
    )
    _run(plan, options)


@command.command()
@click.argument("uri")
@click.option("--recursive", is_flag=True, help="Remove everything below the prefix URI.")
@_force
@_with_shared
def rm(uri: str, recursive: bool, force: bool, **options: Any) -> None:
    """Remove an object, or everything below a prefix with --recursive.

    Unlike `aws s3 rm`, s3://bucket/data does not include s3://bucket/data-2, and a whole bucket needs --force.

    \b
    Example:
      cloudtrain s3 rm --recursive --dryrun s3://bucket/data
    """
    from cloudtrain.data.location import Location
    from cloudtrain.data.plan import plan_removal

    _run(plan_removal(Location.parse(uri), _filter(options), recursive=recursive, force=force), options)


@command.command()
@click.argument("uri", required=False)
@click.option("--recursive", is_flag=True, help="List everything below URI, not only the first level.")
@click.option("--human-readable", is_flag=True, help="Print sizes such as 1.5 MB.")
@click.option(
    "--summarize", is_flag=True, help="Print the number of objects and their total size at the end."
)
@_local_server
@json_option
def ls(uri: str | None, recursive: bool, human_readable: bool, summarize: bool, as_json: bool) -> None:
    """List the objects and folders below URI; without URI, the buckets.

    \b
    Examples:
      cloudtrain s3 ls s3://bucket/data
      cloudtrain s3 ls --recursive --human-readable --summarize s3://bucket
    """
    from cloudtrain.data.location import list_buckets, list_objects

    if uri is None:
        buckets = list_buckets()
        if as_json:
            echo_json([{"uri": f"s3://{found.key}", "created": _iso(found)} for found in buckets])
        else:
            for found in buckets:
                click.echo(f"{_local_time(found)} {found.key}")
        return
    base, entries = list_objects(uri, recursive=recursive)
    objects = [entry for entry in entries if not entry.key.endswith("/")]
    if as_json:
        echo_json([_record(base, entry) for entry in entries])
        return
    for entry in entries:
        click.echo(_line(entry, human_readable=human_readable))
    if summarize:
        total = sum(entry.size for entry in objects)
        click.echo(f"\nTotal Objects: {len(objects)}\n   Total Size: {_size(total, human_readable)}")


def _record(base: str, entry: ObjectInfo) -> dict[str, Any]:
    place = {"uri": f"{base}/{entry.key}", "key": entry.key}
    return place if entry.key.endswith("/") else {**place, "size": entry.size, "modified": _iso(entry)}


def _line(entry: ObjectInfo, *, human_readable: bool) -> str:
    from cloudtrain.data.location import printable

    if entry.key.endswith("/"):
        return f"{'PRE':>30} {printable(entry.key)}"
    return f"{_local_time(entry)} {_size(entry.size, human_readable):>10} {printable(entry.key)}"


def _size(count: int, human_readable: bool) -> str:
    from rich.filesize import decimal

    return decimal(count) if human_readable else str(count)


def _local_time(entry: ObjectInfo) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(entry.modified).strftime("%Y-%m-%d %H:%M:%S")


def _iso(entry: ObjectInfo) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(entry.modified, timezone.utc).isoformat(timespec="seconds")


def _filter(options: dict[str, Any]) -> Any:
    from cloudtrain.data.plan import Filter

    return Filter(options["exclude"], options["include"])


def _run(plan: Plan, options: dict[str, Any]) -> None:
    """Carry out ``plan``, or print it, and report each step."""
    from cloudtrain.cli._output import bytes_bar
    from cloudtrain.data.plan import carry_out

    as_json, quiet, dryrun = options["as_json"], options["quiet"], options["dryrun"]
    done: list[Copy | Deletion] = []
    lock = threading.Lock()
    out = sys.stdout  # while there is a progress bar, sys.stdout writes above it, to stderr

    def report(step: Copy | Deletion) -> None:
        with lock:
            done.append(step)
            if not (as_json or quiet):
                text = f"(dryrun) {step}" if dryrun else str(step)
                click.echo(text, file=sys.stdout if out.isatty() else out)

    if dryrun:
        for step in plan.steps:
            report(step)
    else:
        try:
            with bytes_bar("copy", plan.size, quiet=as_json or quiet or not plan.copies) as on_bytes:
                carry_out(plan, report, on_bytes)
        except KeyboardInterrupt:
            click.echo(
                f"Interrupted after {len(done)} of {len(plan.steps)} files. "
                "No file is incomplete: run it again to continue.",
                err=True,
            )
            sys.exit(INTERRUPTED)
    if as_json:
        echo_json(_summary(done, dryrun=dryrun))


def _summary(done: list[Copy | Deletion], *, dryrun: bool) -> dict[str, Any]:
    from cloudtrain.data.plan import Copy

    steps = sorted(done, key=str)
    copied = [step for step in steps if isinstance(step, Copy)]
    return {
        "dryrun": dryrun,
        "bytes": sum(step.entry.size for step in copied),
        "copied": [
            {
                "source": step.source.show(step.entry.key),
                "target": step.target.show(step.key),
                "size": step.entry.size,
            }
            for step in copied
        ],
        "deleted": [step.tree.show(step.entry.key) for step in steps if not isinstance(step, Copy)],
    }


@command.command()
@click.option(
    "--dir",
    "data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder to store objects in.  [default: the last one used, initially in the state folder]",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Port to listen on.  [default: the last one used, initially a free one]",
)
@json_option
def start(data: Path | None, port: int | None, as_json: bool) -> None:
    """Start the server. It runs in the background until you stop it.

    The server listens on the loopback interface only, and requires keys, which are random. No web page can read or
    write its objects. But other users of this machine can: SeaweedFS's services trust every gRPC client.
    """
    from cloudtrain.testing import start_s3

    daemon, started = start_s3(data, port=port or 0)
    if as_json:
        click.echo(json.dumps({"started": started, **_describe(daemon)}))
        return
    click.echo(f"The S3 server {'runs' if started else 'already runs'} at {daemon.account.endpoint}")
    click.echo(f"Objects are stored in {daemon.data}")
    click.echo('To use it: eval "$(cloudtrain s3 env)"')


@command.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop the server. It keeps its objects and keys for the next start."""
    from cloudtrain.testing import stop_s3

    stopped = stop_s3()
    if as_json:
        click.echo(json.dumps({"stopped": stopped}))
    else:
        click.echo("The S3 server has stopped." if stopped else "No S3 server is running.")


@command.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the server runs, and at which address. The exit status is 1 if it does not run."""
    from cloudtrain.testing import running_s3

    daemon = running_s3()
    if as_json:
        click.echo(json.dumps({"running": daemon is not None, **(_describe(daemon) if daemon else {})}))
    elif daemon:
        click.echo(f"The S3 server runs at {daemon.account.endpoint} (process {daemon.pid})")
        click.echo(f"Objects are stored in {daemon.data}")
    else:
        click.echo("No S3 server is running.")
    if daemon is None:
        raise SystemExit(1)


@command.command()
@json_option
def env(as_json: bool) -> None:
    """Print shell commands that set the server's address and keys as AWS variables.

    \b
    Example:
      eval "$(cloudtrain s3 env)"
    """
    settings = running_server().account.env
    if as_json:
        click.echo(json.dumps(settings))
    else:
        for name, value in settings.items():
            click.echo(f"export {name}={shlex.quote(value)}")


@command.command("make-bucket")
@click.argument("name")
@json_option
def make_bucket(name: str, as_json: bool) -> None:
    """Create the bucket NAME on the server if it does not exist. Prints its URI."""
    running_server().account.create_bucket(name)
    click.echo(json.dumps({"uri": f"s3://{name}"}) if as_json else f"s3://{name}")


def running_server() -> S3Daemon:
    from cloudtrain.testing import running_s3

    daemon = running_s3()
    if daemon is None:
        raise click.ClickException("No S3 server is running.\n  Start one: cloudtrain s3 start")
    return daemon


def _describe(daemon: S3Daemon) -> dict[str, Any]:
    return {"endpoint": daemon.account.endpoint, "data": str(daemon.data), "pid": daemon.pid}
