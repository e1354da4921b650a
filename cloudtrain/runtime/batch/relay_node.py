"""The node's side of `relay`: runs the node program with the lines that the step writes into files.

Usage: ``python cloudtrain.pyz cloudtrain.runtime.batch.relay_node RELAY_FOLDER FOLDER [HOST]``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from cloudtrain.errors import CloudtrainError
from cloudtrain.runtime.batch.relay import BEAT, END, ENVIRON, JOB, LINES, LOST_SECONDS, TICK_SECONDS, Looks
from cloudtrain.runtime.batch.start import NODE, own_name


def main() -> int:
    relay, folder = Path(sys.argv[1]), sys.argv[2]
    try:
        line = (relay / JOB).read_bytes()
        environ = {**os.environ, **json.loads((relay / ENVIRON).read_bytes()), **_own()}
        names = json.loads(line)["names"]
        name = sys.argv[3] if len(sys.argv) > 3 else own_name(names)
    except CloudtrainError as error:
        sys.stderr.write(f"[cloudtrain] {error.message}\n")
        return 1
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"[cloudtrain] {relay} cannot be read on this node: {error}\n")
        return 1
    with open(relay / f"out.{name}", "ab", buffering=0) as output:
        command = [sys.executable, "-m", NODE, folder, name]
        node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, env=environ)
        _feed(node, relay, line)
    return node.wait()


OWN = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables with the folder in which this node has unpacked the bundled runtime, and with the GPUs that its scheduler
chose on this node."""


def _own() -> dict[str, str]:
    return {name: os.environ[name] for name in OWN if name in os.environ}


def _feed(node: subprocess.Popen[bytes], relay: Path, line: bytes) -> None:
    """Forward lines until the program ends. Closes its input when the step ends or sends no heartbeat."""
    assert node.stdin
    position, beat, beat_at = 0, b"", time.monotonic()
    data, looks = line, Looks()
    while node.poll() is None:
        try:
            node.stdin.write(data)
            node.stdin.flush()
        except OSError:  # the program has ended
            break
        data = b""
        if not looks.is_due():
            time.sleep(TICK_SECONDS)
            continue
        now = time.monotonic()
        new = _content(relay / BEAT)
        if new != beat:
            beat, beat_at = new, now
        has_ended = (relay / END).exists() or not relay.exists() or now - beat_at > LOST_SECONDS
        data = _content(relay / LINES, position)
        position += len(data)
        if has_ended and not data:
            break
        looks.looked(found=bool(data))
    try:
        node.stdin.close()
    except OSError:
        return


def _content(path: Path, start: int = 0) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
