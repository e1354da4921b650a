"""The image of a job as its checks need it: the engine, and the image itself, are asked once for all of them."""

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
from cloudtrain.packaging.imports import read_sources
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.container._answers import Answers, Questions, ask
from cloudtrain.platforms.container.options import parse_volume
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Source:
    """The packed source of a job, as far as the image is asked about it."""

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
        """None for a job without a script in Python, or whose source somebody else has packed."""
        if not (job.source and job.source.sha256 and job.entry_point and job.entry_point.endswith(".py")):
            return None
        archive = state_home() / "archives" / job.source.sha256 / "sourcedir.tar.gz"
        files = read_sources(archive)
        lines = files.get("requirements.txt", b"").decode("utf-8", "replace").splitlines()
        return cls(archive, job.entry_point, tuple(lines), is_guarded(files[job.entry_point]))


def is_guarded(script: bytes) -> bool:
    """Whether its work stands below ``if __name__ == "__main__"``.

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
        self._asked = False
        self._about: Mapping[str, Any] | None = None
        self._answers: Answers | PlatformError | None = None

    def asked(self, check: Callable[[Answers], Finding]) -> Check:
        """A check of what the image says of itself; ``UNKNOWN`` where it says nothing."""

        def run() -> Finding:
            answers = self.answers()
            if isinstance(answers, Answers) and answers.python:
                return check(answers)
            return Finding(CheckStatus.UNKNOWN, f"{self.name} does not say")

        return run

    def about(self) -> Mapping[str, Any] | None:
        """What the engine knows of it; None where it is not here, or no engine is."""
        self._ask()
        return self._about

    def answers(self) -> Answers | PlatformError | None:
        """What a container of it says, or why none can be started; None where it is not here."""
        self._ask()
        return self._answers

    def _ask(self) -> None:
        with self._lock:
            if self._asked:
                return
            self._asked = True
            try:
                client = EngineClient.connect(find_engine(self._engine))
                if not client.has_image(self.name):
                    return
                with engine_errors(f"cannot look at image {self.name}"):
                    self._about = client.api.inspect_image(self.name)
            except PlatformError:  # the check of the engine tells of it
                return
            try:
                self._answers = ask(client, self.name, self._questions())
            except PlatformError as error:
                self._answers = error

    def _questions(self) -> Questions:
        source = self._source
        return Questions(
            self._imports,
            pack_runtime(state_home() / "runtime").path,
            source.archive if source else None,
            source.script if source else None,
            source is not None and source.is_guarded,
            self._binds,
        )
