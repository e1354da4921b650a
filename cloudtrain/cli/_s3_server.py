"""``cloudtrain s3 start``, ``stop``, ``status``, ``env`` and ``make-bucket``: an S3 server without AWS."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudtrain.cli._options import json_option

if TYPE_CHECKING:
    from cloudtrain.testing import S3Daemon


@click.command()
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


@click.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop the server. It keeps its objects and keys for the next start."""
    from cloudtrain.testing import stop_s3

    stopped = stop_s3()
    if as_json:
        click.echo(json.dumps({"stopped": stopped}))
    else:
        click.echo("The S3 server has stopped." if stopped else "No S3 server is running.")


@click.command()
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


@click.command()
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


@click.command("make-bucket")
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
