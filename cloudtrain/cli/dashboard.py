"""``cloudtrain dashboard``."""

from __future__ import annotations

from pathlib import Path

import click

from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("dashboard")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="The port to listen on; by default one that is free.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen on. Other machines are served only with a certificate, or with --plain-text.",
)
@click.option("--certificate", type=FILE, metavar="FILE", help="A certificate for TLS, in PEM.")
@click.option("--key", type=FILE, metavar="FILE", help="The key of the certificate, in PEM.")
@click.option(
    "--plain-text", is_flag=True, help="Serve other machines without TLS: on a private network only."
)
@click.option("--read-only", is_flag=True, help="Show jobs only: refuse every action on them.")
@json_option
def command(
    port: int,
    host: str,
    certificate: Path | None,
    key: Path | None,
    plain_text: bool,
    read_only: bool,
    as_json: bool,
) -> None:
    """Show the jobs submitted from this machine in the browser, live.

    Prints an address to open, and serves it until it is interrupted. The address has a token: only who has it sees the
    jobs. To open it on another machine: ssh -L 8000:127.0.0.1:8000 HOST cloudtrain dashboard --port 8000
    """
    from cloudtrain.watch.dashboard import Address, serve

    def started(url: str) -> None:
        if as_json:
            echo_json({"url": url})
        else:
            click.echo(f"Open {url}\nEnd it with Ctrl+C.")

    serve(Address(host, port, certificate, key, plain_text), started, is_read_only=read_only)
