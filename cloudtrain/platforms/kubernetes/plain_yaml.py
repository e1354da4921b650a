"""Objects as YAML that every reader takes for the same objects: of version 1.1, of 1.2, and kubectl's in Go.

They differ in what a plain scalar is. ``y`` is true for Go and text for PyYAML; ``1e-3`` is a number for both versions
and text for PyYAML; ``0o17`` is a number in 1.2 only. Text that one of them might take for something else is quoted.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][^\n]*")
"""No reader takes text that begins so for a number or a date."""
_WORDS = {"y", "yes", "on", "true", "n", "no", "off", "false", "null", "inf", "infinity", "nan"}
"""Text that a reader takes for a truth value, for null or for a number, in any case."""
_BLOCK = re.compile(r"[!-~\u00a1-\ud7ff][ -~\u00a0-\ud7ff\n]*")
_BREAKS = re.compile("[\u0085\u2028\u2029]")
"""They end a line in YAML 1.1, and not in 1.2."""


def dump(item: Mapping[str, Any]) -> str:
    """A document. Text of several lines is a block, and what appears twice is repeated."""
    import yaml

    text: str = yaml.dump(
        item,
        Dumper=_dumper(),
        sort_keys=False,
        allow_unicode=True,
        width=1 << 30,
        default_flow_style=False,
    )
    return text


def _style(text: str) -> str | None:
    """The style of a scalar; None lets PyYAML choose, which quotes only what it would misread itself."""
    if _BREAKS.search(text):
        return '"'
    if "\n" in text:
        return "|" if _BLOCK.fullmatch(text) else '"'
    return None if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else "'"


@functools.cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))

    Dumper.add_representer(str, represent)
    return Dumper
