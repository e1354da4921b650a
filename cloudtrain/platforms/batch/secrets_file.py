"""The secrets of a job on their way to its first node: a file that only its owner can read."""

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


def take_secrets(folder: Path) -> dict[str, str]:
    """The variables in the file of a job, which is removed. Without the file, there are none."""
    path = folder / SECRETS
    try:
        data = read_regular(path, LARGEST)
    except OSError:
        return {}
    with contextlib.suppress(OSError):
        path.unlink()
    return dict(Fields(parse_json(data)).text_mapping("variables", {}))
