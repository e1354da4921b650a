"""Uploads the files of trackers to ``output/`` while the job runs, so that they survive the loss of a host.

These files are TensorBoard's event files, and the folders of Weights & Biases' offline mode.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.contract.trackers import KEPT_FOLDERS
from cloudtrain.errors import CloudtrainError
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.outputs.patience import run_within
from cloudtrain.storage import join_uri

if TYPE_CHECKING:
    from cloudtrain.observe import EventLog
    from cloudtrain.runtime.host_config import HostConfig

PAUSE_SHARE = 20
"""The least ratio of a pause to the duration of the last upload, because the growing files are uploaded as a whole."""
HURRIED_SECONDS = 10.0
"""The time limit for the last upload of a job that has failed or is stopped."""


class TrackerFiles(CheckpointSync):
    """Uploads one of `KEPT_FOLDERS` without a wait for complete files, because its files grow continuously."""

    what = "the files of trackers"
    _may_upload_at = 0.0

    def _finished(self, now: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        return now if time.monotonic() >= self._may_upload_at else {}

    def _upload(self, *given: object) -> None:
        began = time.monotonic()
        super()._upload(*given)  # type: ignore[arg-type]
        self._may_upload_at = time.monotonic() + PAUSE_SHARE * (time.monotonic() - began)


def keep_tracker_files(config: HostConfig, events: EventLog) -> list[TrackerFiles]:
    """Start uploading this host's folders if the runtime uploads its outputs."""
    uri, host = config.settings.output_uri, config.host
    named = host.current if host.count > 1 else ""
    kept = []
    with contextlib.suppress(CloudtrainError):  # the upload of the outputs reports it
        for name in KEPT_FOLDERS if uri else ():
            folder, path = config.paths.output / name, f"{DEFAULT_BASE}/output/{name}"
            kept.append(TrackerFiles(folder, join_uri(uri, name), events, path=path, whole=True, host=named))
    for one in kept:
        one.start()
    return kept


def last_upload(kept: list[TrackerFiles]) -> list[str]:
    """Upload the changed files. Returns errors as warnings, so that no job fails because of a tracker's files."""
    found = []
    for folder in kept:
        try:
            folder.finish()  # its warnings are about links such as latest-run
        except Exception as error:
            found.append(f"cannot upload {folder.what}: {getattr(error, 'message', error)}")
    return found


def hurried_upload(kept: list[TrackerFiles]) -> list[str]:
    """Like `last_upload`, but within `HURRIED_SECONDS`, for a job whose hosts may be taken away."""
    found: list[str] = []
    try:
        has_ended = run_within(HURRIED_SECONDS, lambda moved: found.extend(last_upload(kept)))
    except RuntimeError as error:  # there are too many threads
        return [f"cannot upload {TrackerFiles.what}: {error}"]
    if not has_ended:
        return [*found, f"not all of {TrackerFiles.what} were uploaded within {HURRIED_SECONDS:g} s"]
    return found
