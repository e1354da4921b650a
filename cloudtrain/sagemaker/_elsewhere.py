"""Placeholders for classes of the SageMaker SDK that notebooks import with those for training, and use after it.

The import works, so that the cells that train run. Using the class raises an error with the line to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cloudtrain._sdk.arguments import UNSUPPORTED
from cloudtrain._sdk.left_out import INSTALL, code, refusal
from cloudtrain.errors import NotSupported


class Placeholder(type):
    """The class of such a class: its attributes raise the error, too, as ``Rule.sagemaker`` does."""

    error: Callable[[], NotSupported]

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise cls.error()


def placeholder(module: str, name: str, hint: str, *, inert: bool = False) -> type:
    """The class ``name`` of a module of the SDK.

    Args:
        hint: the line to write instead.
        inert: whether to make objects, which only their methods refuse to use: ``deploy(serializer=CSVSerializer())``
            is then refused by ``deploy``.
    """

    def error(*_: Any) -> NotSupported:
        return refusal(f"sagemaker.{module}.{name}", hint)

    def make(self: Any, *_: Any, **__: Any) -> None:
        if not inert:
            raise error()

    def use(self: Any, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        raise error()

    members = {"__init__": make, "__getattr__": use, "error": error, "__module__": f"sagemaker.{module}"}
    return Placeholder(name, (), members)


def at_home(
    module: str,
    home: str,
    *,
    renamed: str | None = None,
    inert: bool = False,
) -> Callable[[str], type]:
    """The ``__getattr__`` of a module of the SDK with classes that are not for training.

    Args:
        module: its name in the SDK's version 2.
        home: the module of version 3 with these classes.
        renamed: the class of version 3 in place of all of them.
        inert: as in `placeholder`.
    """

    def get_attribute(name: str) -> type:
        if name.startswith("_"):
            raise _no_attribute(module, name)
        line = code(f"from {home} import {renamed or name}")
        return placeholder(module, name, f"{INSTALL}:{line}", inert=inert)

    return get_attribute


def of_framework(module: str, estimator: str) -> Callable[[str], type]:
    """The ``__getattr__`` of a framework's module: its classes other than the estimator.

    Args:
        module: ``pytorch``.
        estimator: ``PyTorch``, which is the start of the other classes' names.
    """
    homes = {
        f"{estimator}Model": "sagemaker.serve import ModelBuilder",
        f"{estimator}Predictor": "sagemaker.core.resources import Endpoint",
        f"{estimator}Processor": "sagemaker.core.processing import FrameworkProcessor",
    }

    def get_attribute(name: str) -> type:
        if name == "TrainingCompilerConfig":
            return placeholder(module, name, UNSUPPORTED["compiler_config"])
        if name not in homes:
            raise _no_attribute(module, name)
        return placeholder(module, name, f"{INSTALL}:{code(f'from {homes[name]}')}")

    return get_attribute


def _no_attribute(module: str, name: str) -> AttributeError:
    return AttributeError(f"module 'cloudtrain.sagemaker.{module}' has no attribute {name!r}")
