"""What an image says of itself: a container of it is started once, without a network, and asked by `_probe`."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloudtrain.engine.client import Bind, EngineClient, engine_errors
from cloudtrain.packaging import RUNTIME_FILE
from cloudtrain.platforms.container import _probe
from cloudtrain.platforms.container.labels import FOLDER, own_labels

PLACE = "/cloudtrain-check"
"""In the container."""

# As a job is started; but here any Python will do, and it is not process 1, to which an alarm means nothing.
_START = 'for p in python3 python; do "$p" -c "" 2>/dev/null && { "$p" "$0" "$@"; exit; }; done'


@dataclass(frozen=True)
class Trouble:
    """An import that failed."""

    kinds: tuple[str, ...]
    """The names of the exception's class and of those that it is derived from."""
    words: str


@dataclass(frozen=True)
class Answers:
    """What the probe told, as far as it came."""

    python: tuple[int, ...] | None = None
    """The version; None for an image without a Python that runs."""
    markers: Mapping[str, str] = field(default_factory=dict)
    mpirun: str | None = None
    installed: Mapping[str, str] = field(default_factory=dict)
    """Version by distribution."""
    modules: Mapping[str, Trouble | None] = field(default_factory=dict)
    gpu_builds: Mapping[str, str | None] = field(default_factory=dict)
    """The version of CUDA that an imported framework was built for; None for a build without GPUs."""
    script: Trouble | None = None
    stuck: str = ""
    """The module, or script, with which the probe ended: it crashed, or was too slow."""


@dataclass(frozen=True)
class Questions:
    """What to look for in an image."""

    modules: Sequence[str]
    runtime: Path
    """The zipapp of `cloudtrain.packaging.pack_runtime`."""
    source: Path | None = None
    """The packed source."""
    script: str | None = None
    """A Python file of it."""
    run: bool = False
    """Whether the script may be imported, or is only compiled."""
    binds: Sequence[Bind] = ()
    """Volumes that the job's containers have."""


def ask(client: EngineClient, image: str, questions: Questions) -> Answers:
    """Start a container of ``image``, and remove it when it has answered.

    Raises:
        PlatformError: no container of it can be started.
    """
    from docker.types import Mount

    asked = {"modules": list(questions.modules), "script": questions.script, "run": questions.run}
    with engine_errors(f"{image} cannot be looked into"):
        container = client.api.create_container(
            image,
            [json.dumps(asked)],
            entrypoint=["/bin/sh", "-c", _START, f"{PLACE}/probe.py"],
            working_dir=f"{PLACE}/code",
            environment={"PYTHONPATH": f"{PLACE}/{RUNTIME_FILE}"},
            labels={**own_labels(), FOLDER: PLACE},  # no job's: `cloudtrain clean` may remove it
            host_config=client.api.create_host_config(
                network_mode="none",
                mounts=[Mount(bind.target, bind.source, "bind", bind.read_only) for bind in questions.binds],
            ),
        )["Id"]
    try:
        with engine_errors(f"{image} does not answer"):
            client.api.put_archive(container, "/", _files(questions))
            if questions.source:
                client.api.put_archive(container, f"{PLACE}/code", questions.source.read_bytes())
            output = client.api.attach(container, stderr=False, stream=True)
            client.api.start(container)
            return read_answers(_lines(output))
    finally:
        client.remove(container)


def read_answers(lines: Iterator[str]) -> Answers:
    """The lines of a probe, put together."""
    found: dict[str, Any] = {"modules": {}, "stuck": ""}
    for line in lines:
        told = json.loads(line)
        found["stuck"] = told.pop("trying", "")
        trouble = told.pop("error", None)
        if trouble:
            trouble = Trouble(tuple(trouble["kinds"]), trouble["words"])
        if "module" in told:
            found["modules"][told["module"]] = trouble
        elif "script" in told:
            found["script"] = trouble
        else:
            found.update(told)
    python = found.pop("python", None)
    return Answers(python and tuple(python), **found)


def _lines(output: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in output:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


def _files(questions: Questions) -> bytes:
    """The folder of the check, as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in (PLACE, f"{PLACE}/code"):
            member = tarfile.TarInfo(name.lstrip("/"))
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for name, path in (("probe.py", Path(_probe.__file__)), (RUNTIME_FILE, questions.runtime)):
            data = path.read_bytes()
            member = tarfile.TarInfo(f"{PLACE}/{name}".lstrip("/"))
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
