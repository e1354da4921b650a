"""The notebook kernel that this process may be. IPython is never imported: only a kernel has loaded it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def kernel_shell() -> Any:
    """The shell of the kernel: of Jupyter, VS Code, Colab, papermill, nbconvert; None in any other process."""
    shell = _shell()
    return shell if getattr(shell, "kernel", None) is not None else None


def is_terminal() -> bool:
    """Whether this is IPython on a terminal, which shows plain text only."""
    return _shell() is not None and kernel_shell() is None


def publish(shell: Any, data: Mapping[str, str], display_id: str, *, update: bool) -> None:
    """Show ``data``, in one or more formats, in the output of the current cell; or in the place of what has this ID."""
    shell.display_pub.publish(dict(data), {}, transient={"display_id": display_id}, update=update)


def _shell() -> Any:
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython else None
