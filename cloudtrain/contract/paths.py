"""The folders and files of a training container."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cloudtrain._dataclass import dataclass

DEFAULT_BASE = "/opt/ml"


@dataclass(frozen=True)
class Paths:
    """Every path of the contract, below ``base`` (``/opt/ml`` or ``$SAGEMAKER_BASE_DIR``)."""

    base: Path
    run_name: str = ""
    """The name of the folder below ``run`` for the runtime's own files. It differs between runtimes."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Paths:
        return cls(Path(environ.get("SAGEMAKER_BASE_DIR") or DEFAULT_BASE))

    def key(self, path: Path) -> str:
        """``path`` relative to ``base``, as a key for `cloudtrain._system.safe_open.Beneath`."""
        return path.relative_to(self.base).as_posix()

    @property
    def input(self) -> Path:
        return self.base / "input"

    @property
    def input_config(self) -> Path:
        return self.input / "config"

    @property
    def input_data(self) -> Path:
        return self.input / "data"

    def channel(self, name: str) -> Path:
        return self.input_data / name

    @property
    def code(self) -> Path:
        return self.base / "code"

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def checkpoints(self) -> Path:
        return self.base / "checkpoints"

    @property
    def output(self) -> Path:
        return self.base / "output"

    @property
    def output_data(self) -> Path:
        return self.output / "data"

    @property
    def output_intermediate(self) -> Path:
        return self.output / "intermediate"

    @property
    def failure(self) -> Path:
        """The failure reason as text; SageMaker keeps its first 1,024 characters."""
        return self.output / "failure"

    @property
    def failure_report(self) -> Path:
        """The complete `FailureReport`, as JSON."""
        return self.output / "failure.json"

    @property
    def events(self) -> Path:
        """The events of this host, which `cloudtrain.observe` writes."""
        return self.output / "events.jsonl"

    @property
    def success(self) -> Path:
        return self.output / "success"

    @property
    def logs(self) -> Path:
        """One file per rank: ``rank-<R>.log``."""
        return self.output / "logs"

    @property
    def run(self) -> Path:
        """The runtime's own files while ranks run: pipes, heartbeats, records of ranks."""
        return self.base / "run" / self.run_name

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder of the contract."""
        return (
            self.input_config, self.input_data, self.code, self.model, self.checkpoints,
            self.output_data, self.output_intermediate, self.logs, self.run,
        )  # fmt: skip

    def make(self) -> None:
        """Create every folder of the contract.

        Raises OSError when the base cannot be written.
        """
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)
