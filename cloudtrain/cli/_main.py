"""The ``cloudtrain`` program, from its arguments to its exit status."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any

from cloudtrain.cli._errors import cleaning_up, reported, written
from cloudtrain.cli._output import notify
from cloudtrain.contract.text import escape_line


def _show_warning(message: Warning | str, *_where: Any, **_more: Any) -> None:
    """Print one line, without the place in the code, which does not help the user of a command."""
    notify("Warning", escape_line(str(message)))


def main() -> None:
    """The entry point of the ``cloudtrain`` program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a Windows console cannot print all characters
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    atexit.register(gc.freeze)  # otherwise Python collects garbage when it exits
    with cleaning_up(), written(), reported():
        if sys.argv[1:2] == ["run"]:  # without click: its import would take as long as all others
            from cloudtrain.cli._run import run

            if run(sys.argv[2:]):
                return
        from cloudtrain.cli._commands import cli

        if "_CLOUDTRAIN_COMPLETE" in os.environ:
            from cloudtrain.cli._option_values import register

            register()
        # on Windows, click would expand ~, * and %NAME% in the arguments of the script
        cli(prog_name="cloudtrain", windows_expand_args=False)
