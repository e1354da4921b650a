"""A large state is saved with one copy and restored without any: the kernel grants no more memory.

Most of its memory is never written, so the kernel backs it by a single page of zeros. The soak saves 8 GiB, of which
one tensor is larger than 4 GiB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
    import resource
    import sys
    from pathlib import Path

    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    SPARE = 256 << 20
    CHUNK = 16 << 20

    zeros = np.zeros(size // 4, dtype=np.float32)
    pieces = np.split(zeros, [size // 64, size // 64 * 2, size // 64 * 5])
    state = {f"layer.{number}": piece for number, piece in enumerate(pieces)}
    for number, piece in enumerate(pieces, 1):
        piece[[0, piece.size // 3, -1]] = number, -number, number / 3

    # RLIMIT_DATA, getrlimit(2): private memory, whether it is touched or not
    status = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (own + size + SPARE,) * 2)

    with Checkpointer(folder / "checkpoints") as checkpointer:
        checkpointer.save(1, state)
    restored = Checkpointer(folder / "checkpoints").restore().state
    assert list(restored) == list(state)
    for name, piece in state.items():
        assert restored[name].shape == piece.shape
        for begin in range(0, piece.size, CHUNK):
            assert np.array_equal(restored[name][begin : begin + CHUNK], piece[begin : begin + CHUNK])
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mib", [512, pytest.param(8 << 10, marks=pytest.mark.soak)])
def test_saved_and_restored_in_the_memory_of_one_copy(tmp_path: Path, mib: int) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), str(mib << 20)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    shutil.rmtree(tmp_path)  # pytest would retain it
    assert done.returncode == 0, done.stderr
