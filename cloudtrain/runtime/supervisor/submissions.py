"""The submissions of a job to a scheduler, and its secrets on their way to its first node.

``batch.json`` has one submission, and another for each further attempt.
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
"""The answer to each submission of the client: it names the job even if it never reached the client."""


@dataclass(frozen=True)
class Submission:
    """A job as the scheduler knows it."""

    number: str
    """The scheduler's name for it, such as ``4711``, or ``4711_3`` for an element of an array."""
    cluster: str = ""
    """The cluster of a scheduler with several."""
    time: float = 0.0
    """In seconds since the epoch."""
    attempt: int = 0
    site: str = ""
    """The scheduler that has it, by the name that it gives itself; empty if it gives none."""


def parse_submissions(data: bytes) -> list[Submission]:
    """The submissions in order. Nothing, or something else in the file, is none."""
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
    """The name of the scheduler in the output of the command that submits; empty if it is not there."""
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
    """Write a submission down in the folder of its job, unless it is there."""
    path = folder / SUBMISSIONS
    known = path.read_bytes() if path.exists() else b""
    new = with_submission(known, submission)
    if new != known:
        replace_file(path, new, mode=0o600)


SECRETS = "secrets.json"
"""The variables that are secrets, in a file that only its owner can read. It stays until the job has ended, because a
scheduler may start the job again, on another node."""
LARGEST = 16 << 20


def secrets_to_json(secrets: Mapping[str, str]) -> bytes:
    return json.dumps({"variables": dict(secrets)}).encode()


def remove_secrets(folder: Path) -> None:
    """Remove the file of a job that has ended."""
    with contextlib.suppress(OSError):
        (folder / SECRETS).unlink()


def read_secrets(folder: Path) -> dict[str, str]:
    """The variables in the file of a job. Without the file, there are none."""
    try:
        data = read_regular(folder / SECRETS, LARGEST)
    except OSError:
        return {}
    return dict(Fields(parse_json(data)).text_mapping("variables", {}))
