"""The secrets of a job on their way to its first node: a file that only its owner can read.

It stays until the job has ended, because a scheduler may start the job again, on another node.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from cloudtrain._system.files import read_regular
from cloudtrain.contract.documents import Fields, parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

SECRETS = "secrets.json"
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
