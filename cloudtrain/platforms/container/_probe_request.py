"""Probes an image: starts one container of it, without a network, in which `_probe` reports what the image has."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloudtrain.engine.client import Bind, EngineClient, confinement, engine_errors
from cloudtrain.packaging import RUNTIME_FILE
from cloudtrain.platforms.container import _probe
from cloudtrain.platforms.container.engine_objects import FOLDER, own_labels

PROBE_FOLDER = "/cloudtrain-check"
"""The folder of the probe in the container."""

# Like the start of a job, but accepts any version of Python. Python is not process 1, which ignores SIGALRM.
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


@dataclass(frozen=True)
class ProbeRequest:
    """The modules and the script that a probe tries to import."""

    modules: Sequence[str]
    runtime: Path
    """The zipapp of `cloudtrain.packaging.pack_runtime`."""
    source: Path | None = None
    """The packed source."""
    script: str | None = None
    """A Python file in the source."""
    run: bool = False
    """Whether to import the script, or only compile it."""
    binds: Sequence[Bind] = ()
    """The volumes of the job's containers."""


def probe(client: EngineClient, image: str, request: ProbeRequest) -> ProbeResult:
    """Start a container of ``image``, wait for its report, and remove it.

    Raises:
        PlatformError: a container of ``image`` cannot be started.
    """
    from docker.types import Mount

    argument = {"modules": list(request.modules), "script": request.script, "run": request.run}
    with engine_errors(f"cannot probe the image {image}"):
        container = client.api.create_container(
            image,
            [json.dumps(argument)],
            entrypoint=["/bin/sh", "-c", _START, f"{PROBE_FOLDER}/probe.py"],
            working_dir=f"{PROBE_FOLDER}/code",
            environment={"PYTHONPATH": f"{PROBE_FOLDER}/{RUNTIME_FILE}"},
            labels={
                **own_labels(),
                FOLDER: PROBE_FOLDER,
            },  # it belongs to no job: `cloudtrain clean` may remove it
            host_config=client.api.create_host_config(
                network_mode="none",
                mounts=[Mount(bind.target, bind.source, "bind", bind.read_only) for bind in request.binds],
                **confinement(),
            ),
        )["Id"]
    try:
        with engine_errors(f"cannot probe the image {image}"):
            client.api.put_archive(container, "/", _files(request))
            if request.source:
                client.api.put_archive(container, f"{PROBE_FOLDER}/code", request.source.read_bytes())
            output = client.api.attach(container, stderr=False, stream=True)
            client.api.start(container)
            return read_result(_lines(output))
    finally:
        client.remove(container)


def read_result(lines: Iterator[str]) -> ProbeResult:
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


def _lines(output: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in output:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


def _files(request: ProbeRequest) -> bytes:
    """The folder of the probe, as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in (PROBE_FOLDER, f"{PROBE_FOLDER}/code"):
            member = tarfile.TarInfo(name.lstrip("/"))
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for name, path in (("probe.py", Path(_probe.__file__)), (RUNTIME_FILE, request.runtime)):
            data = path.read_bytes()
            member = tarfile.TarInfo(f"{PROBE_FOLDER}/{name}".lstrip("/"))
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
