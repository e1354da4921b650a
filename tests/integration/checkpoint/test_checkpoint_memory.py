"""A save needs memory for one copy of the state and little more; an in-place restore needs none."""

from __future__ import annotations

import subprocess
import sys
import textwrap

MIB = 1 << 20
STATE = 192 * MIB
SPARE = 128 * MIB
"""In addition to the copy: threads, connection buffers, and memory retained by the allocator."""

SCRIPT = """
    import sys
    import numpy as np
    from cloudtrain.checkpoint import Checkpointer

    def memory(line):
        with open("/proc/self/status") as status:
            return next(int(text.split()[1]) << 10 for text in status if text.startswith(line))

    def forget_peak():
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    uri, size = sys.argv[1], int(sys.argv[2])
    state = {index: np.full(size // 128 // 8, index, dtype=np.float64) for index in range(128)}
    Checkpointer(uri + "/first").save(1, {"small": state[0][:10]})  # whatever is loaded once
    before = memory("VmRSS")
    forget_peak()
    with Checkpointer(uri) as checkpointer:
        for step in (1, 2):
            for array in state.values():
                array += 1
            checkpointer.save(step, state)
    print(memory("VmHWM") - before)
    for array in state.values():
        array[:] = 0
    before = memory("VmRSS")
    forget_peak()
    Checkpointer(uri).restore(into=state)
    print(memory("VmHWM") - before)
    assert all((array == index + 2).all() for index, array in state.items())
"""


def test_one_copy_to_save_and_none_to_restore(uri: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), uri, str(STATE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    save, restore = map(int, done.stdout.split())
    print(f"{STATE // MIB} MiB of state: {save / MIB:.0f} MiB more to save, {restore / MIB:.0f} to restore")
    assert save < STATE + SPARE
    assert restore < SPARE
