"""Runs commands of cloudtrain, ``commands.py '[["list", "--json"]]'``, and prints how each ended, as JSON."""

from __future__ import annotations

import json
import sys

from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.errors import CloudtrainError


def run(arguments: list[str]) -> tuple[int, str, str]:
    """The exit code, stdout, and stderr, which ends with the error that the command line would print."""
    done = CliRunner().invoke(cli, arguments)
    if done.exception and not isinstance(done.exception, (SystemExit, CloudtrainError)):
        raise done.exception
    error = str(done.exception) if isinstance(done.exception, CloudtrainError) else ""
    return done.exit_code, done.stdout, done.stderr + error


if __name__ == "__main__":
    print(json.dumps([run(arguments) for arguments in json.loads(sys.argv[1])]))
