"""``cloudtrain s3``: an S3 server on this machine, for people without AWS."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import json_option

if TYPE_CHECKING:
    from cloudtrain.testing import S3Daemon


@click.group("s3")
def command() -> None:
    """An S3 server on this machine, for people without AWS.

    \b
    cloudtrain s3 start
    eval "$(cloudtrain s3 env)"
    cloudtrain s3 make-bucket data
    """


@command.command()
@click.option(
    "--dir",
    "data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the objects are kept.  [default: as last time, at first in the state folder]",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Listen here.  [default: as last time, at first a free one]"
)
@json_option
def start(data: Path | None, port: int | None, as_json: bool) -> None:
    """Start the server; it runs until it is stopped.

    It listens on loopback. S3 asks for its random keys; its inner services do not, so that other users of this
    machine can reach the objects through them.
    """
    from cloudtrain.testing import start_s3

    daemon, started = start_s3(data, port=port or 0)
    if as_json:
        click.echo(json.dumps({"started": started, **_describe(daemon)}))
        return
    click.echo(f"The S3 server {'runs' if started else 'runs already'} at {daemon.account.endpoint}")
    click.echo(f"Objects are kept in {daemon.data}")
    click.echo('To use it: eval "$(cloudtrain s3 env)"')


@command.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop the server. Its objects and keys stay for the next start."""
    from cloudtrain.testing import stop_s3

    stopped = stop_s3()
    if as_json:
        click.echo(json.dumps({"stopped": stopped}))
    else:
        click.echo("The S3 server has stopped." if stopped else "No S3 server runs.")


@command.command()
@json_option
def status(as_json: bool) -> None:
    """Say whether the server runs, and where; exit status 1 if it does not."""
    from cloudtrain.testing import running_s3

    daemon = running_s3()
    if as_json:
        click.echo(json.dumps({"running": daemon is not None, **(_describe(daemon) if daemon else {})}))
    elif daemon:
        click.echo(f"The S3 server runs at {daemon.account.endpoint} (process {daemon.pid})")
        click.echo(f"Objects are kept in {daemon.data}")
    else:
        click.echo("No S3 server runs.")
    if daemon is None:
        raise SystemExit(1)


@command.command()
@json_option
def env(as_json: bool) -> None:
    """Print the AWS settings that lead to the server, keys included, for eval."""
    settings = _running().account.env
    if as_json:
        click.echo(json.dumps(settings))
    else:
        for name, value in settings.items():
            click.echo(f"export {name}={shlex.quote(value)}")


@command.command("make-bucket")
@click.argument("name")
@json_option
def make_bucket(name: str, as_json: bool) -> None:
    """Make the bucket NAME on the server, if it is not there."""
    _running().account.create_bucket(name)
    click.echo(json.dumps({"uri": f"s3://{name}"}) if as_json else f"s3://{name}")


def _running() -> S3Daemon:
    from cloudtrain.testing import running_s3

    daemon = running_s3()
    if daemon is None:
        raise click.ClickException("No S3 server runs.\n  Start one: cloudtrain s3 start")
    return daemon


def _describe(daemon: S3Daemon) -> dict[str, Any]:
    return {"endpoint": daemon.account.endpoint, "data": str(daemon.data), "pid": daemon.pid}
