"""What several commands have in common."""

from __future__ import annotations

from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def _complete_job(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from cloudtrain.index import list_jobs

    return [entry.name for entry in list_jobs() if entry.name.startswith(incomplete)]


job_argument = click.argument("job", shell_complete=_complete_job)
platform_option = click.option("--platform", help="Where the job runs, if it was not submitted from here.")


def echo_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
