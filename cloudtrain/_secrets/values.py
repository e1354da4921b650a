"""Distinguishes random values from plain text, placeholders and references."""

from __future__ import annotations

import math
import re
from collections import Counter

from cloudtrain._system.patterns import pattern

SHORTEST = 8
"""Minimum characters: shorter passwords exist, but so do too many harmless values."""
LEAST_ENTROPY = 2.6
"""Minimum bits per character. Random text of 8 characters usually has 2.75 or more."""

_PLACEHOLDER = pattern(
    r"[<>{}$()\[\]\s]|\*\*\*|\.\.\.|x{4}|example|sample|placeholder|change[-_ ]?me|replace|redact|dummy|fake|your[-_]?"
    r"|my[-_]?(?:pass|secret|token|key|api)|insert|todo|fixme|foobar|hunter2|swordfish|12345678|abcdef|qwerty|deadbeef"
    r"|p[a@]ssw[o0]rd|s[e3]cret|test|mock|demo|default|none|null|undefined|https?:|\.py$|\.js(?:on)?$|\.ya?ml$",
    re.IGNORECASE,
)
_DOTTED = pattern(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+")
"""An expression such as ``self.token2index``, or a module."""
_VERSIONED = pattern(r"(?:[A-Za-z]+\d{0,4}|\d{1,4})(?:[-_ /.](?:[A-Za-z]+\d{0,4}|\d{1,4}))*")
"""Plain text with numbers: ``layer-norm-12``, ``gpt2-tokenizer``, ``sha256``."""

_DATE = pattern(r"\d{4}-\d\d-\d\d")


def looks_random(value: str) -> bool:
    """Whether ``value`` is probably a generated password, key or token.

    >>> looks_random("kT9v" + "2mQx7Lp"), looks_random("<your-token-1>"), looks_random("gpt2-tokenizer")
    (True, False, False)
    """
    if len(value) < SHORTEST or _PLACEHOLDER.search(value):
        return False
    is_padded = value.endswith("=") and len(value) % 4 == 0  # base64
    if not (re.search("[0-9]", value) or is_padded) or not re.search("[A-Za-z]", value):
        return False
    if _DATE.match(value) or _DOTTED.fullmatch(value) or _VERSIONED.fullmatch(value):
        return False
    counts = Counter(value).values()
    entropy = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    return entropy >= LEAST_ENTROPY
