"""``cloudtrain report``."""

from __future__ import annotations

from pathlib import Path

import click

from cloudtrain.cli._options import complete_job, json_option, platform_option
from cloudtrain.cli._output import echo_json


@click.command("report")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_job)
@click.option(
    "-o", "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="The file to write: report.html by default, or report.md. A dash is the standard output.",
)  # fmt: skip
@click.option("--markdown", is_flag=True, help="Write Markdown instead of HTML.")
@platform_option
@json_option
def command(
    jobs: tuple[str, ...], output: str | None, markdown: bool, platform: str | None, as_json: bool
) -> None:
    """Write all about JOB into one file, or compare several jobs. JOB may be the name of a sweep.

    The page contains everything it needs: it opens without a network, and can be sent or kept. A job that still runs is
    shown as it is now.

    \b
    Examples:
      cloudtrain report train-1
      cloudtrain report train-1 train-2 -o comparison.html
      cloudtrain report train-1 --markdown -o -
      cloudtrain report my-sweep
    """
    from cloudtrain.watch.report import gather, render, render_sweep, write
    from cloudtrain.watch.sweeps import is_sweep

    names = [*dict.fromkeys(jobs)]
    if len(names) == 1 and is_sweep(names[0]):
        text = render_sweep(names[0], markdown=markdown)
    else:
        text = render([gather(name, platform) for name in names], markdown=markdown)
    if output == "-":
        click.echo(text, nl=False)
        return
    path = Path(output or ("report.md" if markdown else "report.html"))
    write(path, text)
    if as_json:
        echo_json({"path": str(path), "jobs": names})
    else:
        click.echo(f"wrote {path}", err=True)
