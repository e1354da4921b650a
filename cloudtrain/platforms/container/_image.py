"""A job's image, for its checks. They share one query to the engine and one probe, a container without a network.

The container runs `_probe`, which reports what the image has.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tarfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloudtrain.engine.client import Bind, EngineClient, confinement, engine_errors
from cloudtrain.engine.engine import find_engine
from cloudtrain.errors import PlatformError
from cloudtrain.packaging import RUNTIME_FILE, pack_runtime
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.packaging.imports import read_sources
from cloudtrain.platforms.checks import Check, Finding, unknown
from cloudtrain.platforms.container import _probe
from cloudtrain.platforms.container.specs import FOLDER, own_labels
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home

PROBE_FOLDER = "/cloudtrain-check"
"""The folder of the probe in the container."""

# Like a job's start command, but accepts any version of Python. Python must not be process 1, which ignores SIGALRM.
_START = 'for p in python3 python; do "$p" -c "" 2>/dev/null && { "$p" "$0" "$@"; exit; }; done'


@dataclass(frozen=True)
class ImportFailure:
    """An import that failed."""

    kinds: tuple[str, ...]
    """The names of the exception's class and its base classes."""
    message: str


@dataclass(frozen=True)
class ProbeResult:
    """The report of a probe, which is incomplete if the probe crashed."""

    python: tuple[int, ...] | None = None
    """The version; None if the image has no working Python."""
    markers: Mapping[str, str] = field(default_factory=dict)
    mpirun: str | None = None
    installed: Mapping[str, str] = field(default_factory=dict)
    """The version of each distribution."""
    modules: Mapping[str, ImportFailure | None] = field(default_factory=dict)
    gpu_builds: Mapping[str, str | None] = field(default_factory=dict)
    """The version of CUDA that each imported framework was built for; None for a build without GPU support."""
    script: ImportFailure | None = None
    stuck: str = ""
    """The module or script whose import crashed the probe or exceeded its time."""


def read_result(lines: Iterable[str]) -> ProbeResult:
    """Parse the lines of a report."""
    found: dict[str, Any] = {"modules": {}, "stuck": ""}
    for line in lines:
        record = json.loads(line)
        found["stuck"] = record.pop("trying", "")
        failure = record.pop("error", None)
        if failure:
            failure = ImportFailure(tuple(failure["kinds"]), failure["message"])
        if "module" in record:
            found["modules"][record["module"]] = failure
        elif "script" in record:
            found["script"] = failure
        else:
            found.update(record)
    python = found.pop("python", None)
    return ProbeResult(python and tuple(python), **found)


def _files() -> bytes:
    """The folder of the probe, as a tar archive."""
    buffer = io.BytesIO()
    runtime = pack_runtime(state_home() / "runtime").path
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in (PROBE_FOLDER, f"{PROBE_FOLDER}/code"):
            member = tarfile.TarInfo(name.lstrip("/"))
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for name, path in (("probe.py", Path(_probe.__file__)), (RUNTIME_FILE, runtime)):
            data = path.read_bytes()
            member = tarfile.TarInfo(f"{PROBE_FOLDER}/{name}".lstrip("/"))
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


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
        self._binds = [Bind.parse(text) for text in body["volumes"]]
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
            return unknown(f"{self.name} could not be probed")

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
                self._probe_result = self._run_probe(client)
            except PlatformError as error:
                self._probe_result = error

    def _run_probe(self, client: EngineClient) -> ProbeResult:
        """Start a container of the image, wait for its report, and remove it.

        Raises PlatformError if it cannot be started.
        """
        from docker.types import Mount

        source = self._source
        argument = {
            "modules": list(self._imports),
            "script": source.script if source else None,
            "run": source is not None and source.is_guarded,
        }
        api = client.api
        with engine_errors(f"cannot probe the image {self.name}"):
            container = api.create_container(
                self.name,
                [json.dumps(argument)],
                entrypoint=["/bin/sh", "-c", _START, f"{PROBE_FOLDER}/probe.py"],
                working_dir=f"{PROBE_FOLDER}/code",
                environment={"PYTHONPATH": f"{PROBE_FOLDER}/{RUNTIME_FILE}"},
                # it is not part of a job, so `cloudtrain clean` may remove it
                labels={**own_labels(), FOLDER: PROBE_FOLDER},
                host_config=api.create_host_config(
                    network_mode="none",
                    mounts=[Mount(bind.target, bind.source, "bind", bind.read_only) for bind in self._binds],
                    **confinement(),
                ),
            )["Id"]
        try:
            with engine_errors(f"cannot probe the image {self.name}"):
                api.put_archive(container, "/", _files())
                if source:
                    api.put_archive(container, f"{PROBE_FOLDER}/code", source.archive.read_bytes())
                output = api.attach(container, stderr=False, stream=True)
                api.start(container)
                return read_result(b"".join(output).decode().split("\n")[:-1])  # drop an unfinished last line
        finally:
            client.remove(container)
