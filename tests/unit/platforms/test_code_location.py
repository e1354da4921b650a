"""Files that jobs share stay inside a code location that the user has chosen."""

from __future__ import annotations

import pytest

from cloudtrain.platforms.common.bundled_runtime import shared_folder


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("s3://bucket/jobs/cloudtrain/source", "s3://bucket/jobs/cloudtrain"),
        ("s3://team/source", "s3://team/source"),
        ("s3://team/source/", "s3://team/source"),
        ("s3://team/code", "s3://team/code"),
    ],
)
def test_only_a_location_that_cloudtrain_has_chosen_has_a_parent_for_what_jobs_share(
    location: str, folder: str
) -> None:
    assert shared_folder(location) == folder
