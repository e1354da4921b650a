"""The folder in S3 for what the jobs of a code location share."""

from __future__ import annotations

_OUR_SOURCES = "/cloudtrain/source"
"""The end of a code location that a platform has chosen."""


def shared_folder(code_location: str) -> str:
    """The user's code location itself, or the parent of one that cloudtrain has chosen.

    >>> shared_folder("s3://bucket/jobs/cloudtrain/source"), shared_folder("s3://team/source/")
    ('s3://bucket/jobs/cloudtrain', 's3://team/source')
    """
    location = code_location.rstrip("/")
    return location.removesuffix("/source") if location.endswith(_OUR_SOURCES) else location
