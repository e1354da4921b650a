"""Reports errors on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from cloudtrain.errors import CloudtrainError, InvalidJob, InvalidSource

USAGE_ERROR = 2
INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 + SIGINT."""


@contextmanager
def reported() -> Iterator[None]:
    """Turn cloudtrain's errors into a message on stderr (with ``--json``: JSON on stdout) and an exit status."""
    try:
        yield
    except CloudtrainError as error:
        if "--json" in sys.argv:
            record = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
            click.echo(json.dumps({"error": record}))
        else:
            click.echo(f"{click.style('Error:', fg='red', bold=True)} {error}", err=True)
        sys.exit(USAGE_ERROR if isinstance(error, (InvalidJob, InvalidSource)) else 1)
