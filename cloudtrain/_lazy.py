"""Public names that are imported when they are first used (PEP 562), so that a package costs what is used of it.

Every rank of every job imports this: it imports nothing itself, ``typing`` included.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of ``package``, whose public names stand in the modules given.

    >>> __getattr__, __dir__ = lazy(__name__, {"Estimator": "cloudtrain.estimator"})
    """

    def get_attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(names[name]), name)

    return get_attribute, lambda: sorted(names)
