"""Times submissions to a real Slurm through ssh, in units of a handshake, over a connection with a laptop's latency.

    python benchmarks/slurm_ssh.py [--rtt 60] [--runs 5] [--quick]

The login node is a real sshd on this machine. A proxy before it delays every packet by half the round trip. Prints rows
of a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from _common import TEST_FOLDERS

sys.path += TEST_FOLDERS

from login_node import ALIAS, LoginNode
from slurm_cluster import Configuration, SlurmCluster

from cloudtrain import Estimator
from cloudtrain.platforms.batch.control import log_out
from cloudtrain.platforms.slurm import SlurmPlatform


class SlowLink:
    """A proxy that delays all data. ``port`` is where it listens."""

    def __init__(self, target: int, delay: float) -> None:
        self._target, self._delay = target, delay
        self.port = 0
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait(10)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * self._delay)  # TCP's own handshake
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._copy(reader, other_writer), self._copy(other_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            data = b"x"
            while data:
                try:
                    data = await reader.read(1 << 16)
                except OSError:
                    data = b""
                queue.put_nowait((loop.time() + self._delay, data))

        reading = asyncio.create_task(read())
        data = b"x"
        while data:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            writer.write(data)
        writer.close()
        await reading


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def ssh(*options: str) -> float:
    """The duration of a command that does nothing, on a new connection or with the ``options`` of a shared one."""
    return seconds(lambda: subprocess.run(["ssh", *options, ALIAS, "true"], check=True))


def submit(folder: Path, name: str, options: dict[str, object]) -> float:
    estimator = Estimator(str(folder / "train.py"), platform=SlurmPlatform(), platform_options=options)
    return seconds(lambda: estimator.fit(wait=False, job_name=name))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rtt", type=float, default=60, help="round trip in milliseconds")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one run")
    given = parser.parse_args()
    runs = 1 if given.quick else given.runs
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name, SlurmCluster(Configuration()) as slurm:
        folder = Path(name)
        (folder / "train.py").write_text("print(1)\n")
        node = LoginNode(
            folder / "node", noise=f"export HOME={folder}/there", environ={"SLURM_CONF": str(slurm.conf)}
        )
        link = SlowLink(node.port, given.rtt / 2000)
        key = (folder / "node/known_hosts").read_text()
        (folder / "node/known_hosts").write_text(key.replace(str(node.port), str(link.port)))
        node.configure(port=link.port)
        os.environ |= {
            "PATH": f"{node.folder}/bin:{os.environ['PATH']}",
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "CLOUDTRAIN_CONFIG": os.devnull,
            "SLURM_CONF": str(slurm.conf),
        }
        remote: dict[str, object] = {"login": ALIAS, "folder": "$HOME/ct"}
        try:
            handshake = statistics.median(ssh() for _ in range(runs))
            first = submit(folder, "first", remote)
            over_ssh = statistics.median(submit(folder, f"again-{run}", remote) for run in range(runs))
            submit(folder, "here-first", {})
            here = statistics.median(submit(folder, f"here-{run}", {}) for run in range(runs))
        finally:
            log_out(ALIAS)
            node.stop()
    print("| | seconds | handshakes |\n| --- | --- | --- |")
    for what, value in {
        f"a new connection, round trip {given.rtt:g} ms": handshake,
        "the first submission, with runtime and source, and its connection": first,
        "a later submission": over_ssh,
        "the same on the login node": here,
        "a later submission, more than on the login node": over_ssh - here,
    }.items():
        print(f"| {what} | {value:.2f} | {value / handshake:.1f} |")


if __name__ == "__main__":
    main()
