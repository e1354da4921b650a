"""The submissions of a job to a scheduler, and its secrets on their way to its first node.

``batch.json`` contains one submission, and one more for each further attempt.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain._system.files import read_regular
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.storage.atomic import replace_file

SUBMISSIONS = "batch.json"
ANSWERS = "submitted.out"
"""The file with the scheduler's answers to submissions. It has the job's number even if the client never got it."""


@dataclass(frozen=True)
class Submission:
    """A job in the queue of a scheduler."""

    number: str
    """The scheduler's name for the job, such as ``4711``, or ``4711_3`` for an element of an array."""
    cluster: str = ""
    """The name of the cluster, if the scheduler has several."""
    time: float = 0.0
    """The time of the submission, in seconds since the epoch."""
    attempt: int = 0
    site: str = ""
    """The scheduler's own name for itself; empty if it reports none."""


def parse_submissions(data: bytes) -> list[Submission]:
    """The submissions in order; none if ``data`` is empty or invalid."""
    try:
        entries = Fields(parse_json(data)).objects("submissions", ())
        return [
            Submission(
                entry.text("number"),
                entry.text("cluster", ""),
                entry.time("time", 0.0),
                entry.integer("attempt", 0),
                entry.text("site", ""),
            )
            for entry in entries
        ]
    except ValueError:
        return []


def parse_answers(data: bytes, time: float) -> list[Submission]:
    """The submissions in the output of sbatch or qsub, such as ``4711``, ``4711;cluster`` or ``4711.server``."""
    lines = re.finditer(
        r"^(\d+(?:_\d+)?(?:\.[\w.-]+)?)(?:;(.*))?\s*$", data.decode("utf-8", "replace"), re.MULTILINE
    )
    return [Submission(line[1], line[2] or "", time) for line in lines]


def parse_site(data: bytes) -> str:
    """The name of the scheduler in the output of the command that submits; empty if it is missing."""
    found = re.search(rb"^site=(.+)$", data, re.MULTILINE)
    return found[1].decode("utf-8", "replace").strip() if found else ""


def submissions_to_json(submissions: Sequence[Submission]) -> bytes:
    return json.dumps({"submissions": [asdict(entry) for entry in submissions]}).encode()


def with_submission(data: bytes, new: Submission) -> bytes:
    """The content of the file with ``new``, unless it is there already."""
    known = parse_submissions(data)
    if any((entry.number, entry.attempt) == (new.number, new.attempt) for entry in known):
        return data
    return submissions_to_json([*known, new])


def note_submission(folder: Path, submission: Submission) -> None:
    """Record a submission in the folder of its job, unless it is recorded already."""
    path = folder / SUBMISSIONS
    known = path.read_bytes() if path.exists() else b""
    new = with_submission(known, submission)
    if new != known:
        replace_file(path, new, mode=0o600)


SECRETS = "secrets.json"
"""The name of the file with the secret variables, which only its owner can read. The file stays until the job has
ended, because a scheduler may restart the job on another node."""
LARGEST = 16 << 20


def secrets_to_json(secrets: Mapping[str, str]) -> bytes:
    return json.dumps({"variables": dict(secrets)}).encode()


def remove_secrets(folder: Path) -> None:
    """Remove the file of a job that has ended."""
    with contextlib.suppress(OSError):
        (folder / SECRETS).unlink()


def read_secrets(folder: Path) -> dict[str, str]:
    """The secret variables of a job; none if it has no file of them."""
    try:
        data = read_regular(folder / SECRETS, LARGEST)
    except OSError:
        return {}
    return dict(Fields(parse_json(data)).text_mapping("variables", {}))
