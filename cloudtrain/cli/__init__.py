"""The ``cloudtrain`` command: a view of the Python API for terminals and scripts."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.cli._commands import cli as cli
    from cloudtrain.cli._main import main as main

__getattr__, __dir__, __all__ = lazy(
    __name__, {"cloudtrain.cli._commands": "cli", "cloudtrain.cli._main": "main"}
)
