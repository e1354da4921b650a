"""Processes that the script starts, and names that exist only in a notebook."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

_ABOVE = (
    "A process that the script started has failed. Its own error is in the output above the traceback: see "
    "cloudtrain logs JOB. If the script captures that output (capture_output), let it print it."
)

HINTS = (
    Hint(
        "CalledProcessError: Command '['python', 'prepare.py']' returned non-zero exit status 1.",
        r"^(?:\w+\.)*CalledProcessError: Command (?s:.*)(?:returned non-zero exit status|died with)",
        _ABOVE,
    ),
    Hint(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: (torchrun in a shell script)",
        r"^(?:\w+\.)*ChildFailedError(?m::|$)",
        _ABOVE,
    ),
    Hint(
        "NameError: name 'display' is not defined",
        r"^NameError: name '(?P<name>display|get_ipython)' is not defined",
        "{name} exists only in a notebook. In a script, print the value, or save the figure to a file.",
    ),
    Hint(
        "EOFError: EOF when reading a line",
        r"^EOFError: EOF when reading a line",
        "The script calls input(), and in a job, no one answers. Take the answer from an argument or from the "
        "environment. cloudtrain run passes its standard input to rank 0.",
    ),
    Hint(
        "ValueError: not enough values to unpack (expected 2, got 0)  (of stty size)",
        r"^(?:ValueError: not enough values to unpack|OSError: \[Errno 25\] Inappropriate ioctl for device)",
        "The script asks for the size of the terminal, and a rank has none. Use shutil.get_terminal_size(), which then "
        "returns 80 columns.",
        traceback=r"stty size|os\.get_terminal_size\(|fcntl\.ioctl\(.*TIOCGWINSZ",
    ),
)
