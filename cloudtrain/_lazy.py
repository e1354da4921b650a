"""Imports public names and modules on first use (PEP 562), so that importing a package is fast.

Every rank of every job imports this module. It imports nothing itself, not even ``typing``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of ``package``.

    ``names`` lists the public names of each module. Those of ``package`` itself are its submodules, which are not in
    ``__all__``.

    >>> __getattr__, __dir__, __all__ = lazy(__name__, {"cloudtrain.errors": "InvalidJob TrainingFailed"})
    """
    modules = {name: module for module, given in names.items() for name in given.split()}

    def get_attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        if modules[name] == package:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(modules[name]), name)
        vars(sys.modules[package])[name] = found  # the next use does not call this function
        return found

    public = sorted(name for name, module in modules.items() if module != package)
    return get_attribute, lambda: sorted(modules), public


GARBAGE = 50_000
"""The number of new objects after which Python collects cyclic garbage, of which our programs make little. With
Python's default, 700, this takes a tenth of the time to list thousands of jobs, and a twentieth of the import time."""


def start_program() -> None:
    """Make this process, a program of cloudtrain, start faster. To be called before all other imports."""
    import gc

    gc.set_threshold(GARBAGE)
    defer("inspect")


def defer(module: str) -> None:
    """Import a module of the standard library when it is first used, not when another module imports it.

    For cloudtrain's programs: `dataclasses` imports `inspect`, which takes as long as Python's own startup, but hardly
    uses it. Other modules see no difference, however they import it.
    """
    import sys
    from _thread import RLock
    from importlib import import_module
    from importlib.machinery import PathFinder
    from types import ModuleType

    spec = PathFinder.find_spec(module)
    if module in sys.modules or spec is None:
        return
    stand_in, lock = ModuleType(module), RLock()

    def get_attribute(name: str) -> Any:
        with lock:
            if sys.modules.get(module) is stand_in:
                del sys.modules[module]
        return getattr(import_module(module), name)

    vars(stand_in).clear()  # the import system reads __spec__, without using the module
    vars(stand_in).update(__spec__=spec, __getattr__=get_attribute)
    sys.modules[module] = stand_in
