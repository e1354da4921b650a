"""Imports public names on first use (PEP 562), so that importing a package is fast.

Every rank of every job imports this module. It imports nothing itself, not even ``typing``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of ``package``. ``names`` maps its public names to their modules.

    The name of a module of ``package`` maps to the module itself.

    >>> __getattr__, __dir__ = lazy(__name__, {"Estimator": "cloudtrain.estimator"})
    """

    def get_attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(names[name])
        return module if names[name] == f"{package}.{name}" else getattr(module, name)

    return get_attribute, lambda: sorted(names)
