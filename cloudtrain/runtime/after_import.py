"""Acts on a module right after the script imports it, and never imports the module itself."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class AfterImport:
    """Calls ``act`` with the module ``name`` right after its import.

    Insert it as the first entry of ``sys.meta_path``. It removes itself at the import.
    """

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._act(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
