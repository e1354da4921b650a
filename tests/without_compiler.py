"""Keeps torch from importing its compiler with the first optimizer: that takes longer than the program of a test.

Imported by programs that compile nothing, before their first optimizer.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


def _as_it_is(function: Any = None, *options: Any, **keywords: Any) -> Any:
    """The function; without one, a decorator that returns it."""
    return _as_it_is if function is None else function


if "torch._dynamo" not in sys.modules:
    _compiler: Any = ModuleType("torch._dynamo")
    _compiler.disable = _as_it_is
    _compiler.graph_break = lambda *message, **keywords: None
    _compiler.trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
    sys.modules["torch._dynamo"] = torch._dynamo = _compiler
