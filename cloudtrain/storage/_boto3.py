"""Finds boto3: the one that is installed, else the one that the job brings along."""

from __future__ import annotations

import importlib.util
import os
import sys

from cloudtrain.contract.settings import BOTO3_FOLDER
from cloudtrain.errors import StorageError


def provide_boto3() -> None:
    """Make ``import boto3`` work.

    The job's own copy comes last on the path: whatever the image or the requirements have is used instead of it.

    Raises:
        StorageError: there is none.
    """
    if "boto3" in sys.modules:
        return
    folder = os.environ.get(BOTO3_FOLDER)
    if folder and folder not in sys.path and os.path.isdir(folder):
        sys.path.append(folder)
    if importlib.util.find_spec("boto3") is None:
        raise StorageError(
            f"s3:// needs boto3, and {sys.executable} does not have it",
            hint="Install boto3: in the image of a job, or with its requirements.txt.",
        )
