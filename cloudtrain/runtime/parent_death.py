"""Runs a command in place of itself that ends with the process that started it:

python .../cloudtrain/runtime/exec_pdeathsig.py COMMAND...
"""

from __future__ import annotations

import os
import signal
import sys

from cloudtrain.runtime.rank import die_with_parent


def main(command: list[str]) -> None:
    die_with_parent()
    # Python ignores them: what is executed would inherit that
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
