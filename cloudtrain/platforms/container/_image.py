"""The image of a job for its checks, which share one query to the engine and one probe of the image."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain.engine.client import Bind, EngineClient, engine_errors
from cloudtrain.engine.engine import find_engine
from cloudtrain.errors import PlatformError
from cloudtrain.packaging import pack_runtime
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.packaging.imports import read_sources
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.container._probe_request import ProbeRequest, ProbeResult, probe
from cloudtrain.platforms.container.values import parse_volume
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Source:
    """The parts of a job's packed source that the probe needs."""

    archive: Path
    script: str
    requirements: tuple[str, ...]
    """The lines of ``requirements.txt``."""
    is_guarded: bool
    """Whether the script can be imported without training."""

    @property
    def required(self) -> set[str]:
        """The names in ``requirements.txt``."""
        return {match[0].lower() for line in self.requirements if (match := _NAME.match(line))}

    @classmethod
    def of(cls, job: TrainingJob) -> Source | None:
        """None for a job without a Python script, or whose source was not packed by cloudtrain."""
        if not (job.source and job.source.sha256 and job.entry_point and job.entry_point.endswith(".py")):
            return None
        archive = cached_archive(job.source.sha256)
        files = read_sources(archive)
        lines = files.get("requirements.txt", b"").decode("utf-8", "replace").splitlines()
        return cls(archive, job.entry_point, tuple(lines), is_guarded(files[job.entry_point]))


def is_guarded(script: bytes) -> bool:
    """Whether the script does its work below ``if __name__ == "__main__"``.

    >>> is_guarded(b'def main(): ...\\n\\nif __name__ == "__main__":\\n    main()')
    True
    """
    found = (node for node in ast.parse(script).body if isinstance(node, ast.If))
    return any("__name__" in ast.unparse(node.test) for node in found)


class Image:
    """The image of one job."""

    def __init__(self, body: Mapping[str, Any], source: Source | None, imports: Sequence[str]) -> None:
        self.name = str(body["image"])
        self._engine = body.get("engine")
        self._binds = [Bind(*parse_volume(text)) for text in body["volumes"]]
        self._source = source
        self._imports = imports
        self._lock = threading.Lock()
        self._is_probed = False
        self._about: Mapping[str, Any] | None = None
        self._probe_result: ProbeResult | PlatformError | None = None

    def check(self, finding_of: Callable[[ProbeResult], Finding]) -> Check:
        """A check of the probe's report; ``UNKNOWN`` if there is no report."""

        def run() -> Finding:
            result = self.probe_result()
            if isinstance(result, ProbeResult) and result.python:
                return finding_of(result)
            return Finding(CheckStatus.UNKNOWN, f"{self.name} could not be probed")

        return run

    def about(self) -> Mapping[str, Any] | None:
        """The engine's description of the image; None if the image or an engine is missing."""
        self._probe()
        return self._about

    def probe_result(self) -> ProbeResult | PlatformError | None:
        """The report of a probe, or the reason why no container starts; None if the image is not on this machine."""
        self._probe()
        return self._probe_result

    def _probe(self) -> None:
        with self._lock:
            if self._is_probed:
                return
            self._is_probed = True
            try:
                client = EngineClient.connect(find_engine(self._engine))
                if not client.has_image(self.name):
                    return
                with engine_errors(f"cannot inspect the image {self.name}"):
                    self._about = client.api.inspect_image(self.name)
            except PlatformError:  # the check of the engine reports it
                return
            try:
                self._probe_result = probe(client, self.name, self._probe_request())
            except PlatformError as error:
                self._probe_result = error

    def _probe_request(self) -> ProbeRequest:
        source = self._source
        return ProbeRequest(
            self._imports,
            pack_runtime(state_home() / "runtime").path,
            source.archive if source else None,
            source.script if source else None,
            source is not None and source.is_guarded,
            self._binds,
        )
