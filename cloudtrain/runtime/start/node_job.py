"""The first line that the step sends to the node programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from cloudtrain.contract.documents import Fields, parse_json


@dataclass(frozen=True)
class NodeJob:
    """The part of a job that the step sends to every node."""

    names: list[str]
    """The hosts, in rank order."""
    environment: dict[str, str] = field(default_factory=dict)
    """The job's variables, with secrets."""
    settings: dict[str, str] = field(default_factory=dict)
    """The variables of `Settings`, without what a node finds out itself."""
    interface: str = "auto"
    node_folder: str = ""
    container: dict[str, Any] = field(default_factory=dict)
    """As in the request; empty without one."""
    mounts: list[str] = field(default_factory=list)
    """The mounts that a container needs in addition to the folder of its host, as `container.Mount` has it."""
    shared: list[str] = field(default_factory=list)
    """The files of several jobs of which a container gets copies."""
    runtime: str = ""
    """The path of the bundled runtime."""
    srun: str = ""
    """The kind of MPI for which srun starts the ranks; empty if it does not."""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> NodeJob:
        given = Fields(parse_json(line))
        return cls(
            list(given.texts("names")),
            dict(given.text_mapping("environment", {})),
            dict(given.text_mapping("settings", {})),
            given.text("interface", "auto"),
            given.text("node_folder", ""),
            dict(given.mapping("container", {})),
            list(given.texts("mounts", ())),
            list(given.texts("shared", ())),
            given.text("runtime", ""),
            given.text("srun", ""),
        )
