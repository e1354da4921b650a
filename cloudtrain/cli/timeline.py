"""``cloudtrain timeline``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cloudtrain.cli._options import complete_job_or_file, json_option, platform_option
from cloudtrain.cli._output import echo_json


@click.command("timeline")
@click.argument(
    "what", nargs=-1, required=True, metavar="JOB | FILES...", shell_complete=complete_job_or_file
)
@platform_option
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Merge the traces of all ranks into FILE.",
)
@click.option(
    "--png", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Plot the steps to FILE."
)
@click.option("--steps", "each", is_flag=True, help="Show one row per step instead of one per rank.")
@json_option
def command(
    what: tuple[str, ...],
    platform: str | None,
    output: Path | None,
    png: Path | None,
    each: bool,
    as_json: bool,
) -> None:
    """Show how training steps spend their time.

    Reads the timeline of JOB, or the trace FILES (or folders) that ranks recorded. Open the merged trace that
    --output writes in https://ui.perfetto.dev or chrome://tracing; it includes any torch.profiler traces in FILES.

    \b
    Examples:
      cloudtrain submit train.py --name timed --set timeline=true
      cloudtrain timeline timed --steps
      cloudtrain timeline timed --output trace.json
    """
    from cloudtrain.cli._timeline import describe, draw, show_ranks, show_steps, timeline_files
    from cloudtrain.observe.timeline import align, find_steps, merge, read_trace

    with timeline_files(what, platform) as files:
        traces = align(read_trace(path) for path in files)
    steps = find_steps(traces)
    if output is not None:
        _write(output, merge(traces))
    if png is not None:
        draw(traces, steps, png)
    if as_json:
        echo_json(describe(traces, steps))
        return
    if each:
        show_steps(steps)
    else:
        show_ranks(traces, steps)
    for path in filter(None, (output, png)):
        click.echo(f"wrote {path}", err=True)


def _write(path: Path, trace: dict[str, Any]) -> None:
    from cloudtrain.errors import StorageError

    try:
        path.write_text(json.dumps(trace), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
