"""Runs a program as on Windows: ``python as_windows.py PROGRAM ARGUMENTS``."""

import os
import runpy
import sys
from importlib import import_module

from hidden import hide_posix

ADAPTING = (
    *("asyncio", "boto3", "botocore.endpoint", "botocore.httpsession", "botocore.signers", "click.testing"),
    *("concurrent.futures.thread", "msgspec", "multiprocessing", "pathspec", "pdb", "rich.console"),
    *("rich.progress", "s3transfer.manager", "webbrowser", "yaml"),
)
"""Modules that look at the system when they are imported: they would look for parts of Windows."""

for name in (*ADAPTING, *os.environ.get("IMPORT_BEFORE", "").split()):
    import_module(name)
import_module("boto3").client("s3", region_name="us-east-1")  # imports what it needs

hide_posix()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
