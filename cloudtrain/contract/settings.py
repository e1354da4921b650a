"""What cloudtrain's platforms tell cloudtrain's runtime, beyond SageMaker's contract.

Each is an environment variable ``CLOUDTRAIN_<NAME>``; all are optional, and none is a secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

PREFIX = "CLOUDTRAIN_"


@dataclass(frozen=True)
class Settings:
    """The runtime's settings; `to_environ` and `from_environ` are inverse."""

    job_name: str = ""
    output_uri: str = ""
    """Where the runtime uploads model and outputs; empty where the platform does it itself."""
    checkpoint_uri: str = ""
    """Where checkpoints are kept; ``checkpoints/`` is synced with it."""
    source_sha256: str = ""
    """The source archive is checked against it."""
    source_channel: str = ""
    """The channel that the platform has put the source archive in; it is none of the user's."""
    git_commit: str = ""
    """The commit that the source was at; ends with ``-dirty`` where files were not as committed."""
    compress_output: bool = True
    channels: tuple[tuple[str, str], ...] = ()
    """Pairs of channel and URI that the runtime fetches; empty where the platform fetches them."""
    rendezvous: str = ""
    """Where the leader is found: ``host:port``, or the path of a file on a folder that all hosts share."""
    master_addr: str = ""
    """Address of the leader for the ranks; empty: the leader's host name."""
    master_port: int = 0
    """The ranks' port on the leader; 0: a free one."""
    events: str = ""
    """The file of events; empty: ``output/events.jsonl``."""
    hosts_on_machine: int = 1
    """How many hosts of the job share this machine and its processors."""
    python: str = ""
    """The interpreter that runs the script; empty: the one that runs the runtime."""
    bundled_runtime: str = ""
    """The folder that holds the unpacked bundled runtime, for a ``python`` that does not have cloudtrain installed."""
    requirements_cache: str = ""
    """A folder where environments with the job's requirements are kept; empty: install into this Python."""
    metric_definitions: tuple[tuple[str, str], ...] = ()
    """Pairs of name and regular expression, looked for in what ranks print."""
    timeline: bool = False
    """Ranks record timelines, into ``output/data/timeline/``."""
    stop_grace: float = 120.0
    """Seconds between SIGTERM and SIGKILL when a job is stopped."""
    hang_timeout: float = 0.0
    """Seconds without a heartbeat after which a rank counts as hanging; 0: never."""
    attempt: int = 0
    """0 for the first start, 1 for the first retry, ..."""

    @classmethod
    def variables(cls) -> list[str]:
        """The names of all its variables."""
        return [PREFIX + field.name.upper() for field in fields(cls)]

    def to_environ(self) -> dict[str, str]:
        """Only what differs from the default."""
        environ = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                environ[PREFIX + field.name.upper()] = value if isinstance(value, str) else json.dumps(value)
        return environ

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Raises ValueError when a variable does not hold a value of its type, naming it."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            name = PREFIX + field.name.upper()
            if name in environ:
                values[field.name] = _parse(name, environ[name], field.default)
        return cls(**values)


def _parse(name: str, text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text)
        if isinstance(default, tuple):
            return tuple((str(name), str(item)) for name, item in value)
        return type(default)(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={text!r} is not a value like {default!r}") from None
