"""``cloudtrain timeline``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cloudtrain.cli._options import echo_json, json_option, platform_option


@click.command("timeline")
@click.argument("what", nargs=-1, required=True, metavar="JOB | FILES...")
@platform_option
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write one trace of all ranks there."
)
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Draw a picture there.")
@click.option("--steps", "each", is_flag=True, help="Show each step.")
@json_option
def command(
    what: tuple[str, ...],
    platform: str | None,
    output: Path | None,
    png: Path | None,
    each: bool,
    as_json: bool,
) -> None:
    """Show where the time of training steps goes: of a job, or in the FILES that its ranks recorded.

    The trace that --output writes opens in https://ui.perfetto.dev and in chrome://tracing. Traces of
    torch.profiler among the files go into it too.
    """
    from cloudtrain.cli._timeline_files import timeline_files
    from cloudtrain.cli._timeline_view import describe, show_ranks, show_steps
    from cloudtrain.observe.timeline import align, find_steps, merge, read_trace

    with timeline_files(what, platform) as files:
        traces = align(read_trace(path) for path in files)
    steps = find_steps(traces)
    if output is not None:
        _write(output, merge(traces))
    if png is not None:
        from cloudtrain.cli._timeline_picture import draw

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
