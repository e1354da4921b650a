"""Runs programs as real ranks: processes on this machine that communicate over the loopback interface."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import warm_python

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Rank:
    """One rank, running or finished."""

    process: warm_python.Program
    output: Path

    @property
    def text(self) -> str:
        """Its output so far."""
        return self.output.read_text(errors="replace")

    def wait_for(self, what: str, timeout: float = 120) -> None:
        """Block until it has printed ``what``."""
        deadline = time.monotonic() + timeout
        while what not in self.text:
            assert self.process.poll() is None, f"it ended without {what!r}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {what!r} within {timeout} s:\n{self.text}"
            time.sleep(0.01)


@contextlib.contextmanager
def started(program: str, size: int, *arguments: str) -> Iterator[list[Rank]]:
    """Start a program of `PROGRAMS` as ``size`` ranks; those still running at the end are killed."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        try:
            for number, slot in enumerate(RankSlot.on_host(0, 1, size)):
                path = Path(folder, str(number))
                with open(path, "w") as output:
                    process = warm_python.start(
                        [str(PROGRAMS / program), *arguments],
                        {**os.environ, "OMP_NUM_THREADS": "1", **slot.environment("127.0.0.1", port)},
                        stdout=output,
                        stderr=output,
                    )
                ranks.append(Rank(process, path))
            yield ranks
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()


def run(program: str, size: int, *arguments: str, timeout: float = 200) -> list[str]:
    """Run it to completion; returns the output of each rank. All must succeed."""
    with started(program, size, *arguments) as ranks:
        deadline = time.monotonic() + timeout
        for rank in ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(max(deadline - time.monotonic(), 0.1))
        outputs = "\n".join(f"-- rank {number}:\n{rank.text}" for number, rank in enumerate(ranks))
        assert [rank.process.poll() for rank in ranks] == [0] * size, outputs
        return [rank.text for rank in ranks]
