r"""Regular expressions for the lines of ranks that begin with ``[rank N]``.

SageMaker itself searches the lines in CloudWatch for metrics. cloudtrain's runtime puts ``[rank N]`` before each line
of a rank, so ``^loss=(.*)`` would never match. The request has an expression whose anchors also match after the
prefix; expressions without anchors are sent as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cloudtrain.errors import InvalidJob

LONGEST = 500
"""In characters: the limit of an expression (CreateTrainingJob, ``MetricDefinition``)."""

_PREFIX = r"\[rank\s{digits}\]\s"
"""No literal blank, which ``(?x)`` would ignore."""

_TAKES_PREFIX = "(?:" + _PREFIX.format(digits=r"\d+") + ")?"

_MOST_DIGITS = 5
"""Of a rank's number. A lookbehind has a fixed length in many dialects: one for each."""

_TOKEN = re.compile(
    r"\\A|\\.|\^"
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a set of characters
    r"|\(\?\#[^)]*\)"  # a comment
    r"|\((?:\?(?:P<\w+>|P=\w+|<?[=!]|[:>]|[a-zA-Z-]+:?))?"  # the start of a group
    r"|\)",
    re.DOTALL,
)
_TOKEN_VERBOSE = re.compile(rf"\#[^\n]*|{_TOKEN.pattern}", re.DOTALL)


def after_prefixes(definitions: list[dict[str, str]]) -> list[dict[str, str]]:
    """Metric definitions that match the lines of cloudtrain's runtime as ``definitions`` match the ranks' own.

    Raises:
        InvalidJob: an expression becomes too long for SageMaker.
    """
    return [
        {**one, "Regex": _checked(number, one["Regex"], after_prefix(one["Regex"]))}
        for number, one in enumerate(definitions)
    ]


def after_prefix(regex: str) -> str:
    r"""A regular expression whose ``^`` and ``\A`` also match behind ``[rank N]``; group 1 captures the same text.

    >>> after_prefix("^loss=(.*)")
    '^(?:\\[rank\\s\\d+\\]\\s)?loss=(.*)'
    >>> after_prefix("[^a]loss=(.*)")
    '[^a]loss=(.*)'
    """
    parts, end = [], 0
    for anchor, is_enclosed in _anchors(regex):
        # in a lookaround or in a captured group, the anchor must not consume the prefix
        replacement = _without_width(anchor[0]) if is_enclosed else anchor[0] + _TAKES_PREFIX
        parts += [regex[end : anchor.start()], replacement]
        end = anchor.end()
    return "".join(parts) + regex[end:]


def _anchors(regex: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Each anchor, and whether it is in a lookaround or in a captured group."""
    is_verbose = re.compile(regex).flags & re.VERBOSE
    enclosing: list[bool] = []
    for token in (_TOKEN_VERBOSE if is_verbose else _TOKEN).finditer(regex):
        text = token[0]
        if text in ("^", r"\A"):
            yield token, any(enclosing)
        elif text == ")":
            enclosing.pop()
        elif text.startswith("(") and not text.startswith("(?#"):
            enclosing.append(text == "(" or text.endswith(("=", "!")) or text.startswith("(?P<"))


def _without_width(anchor: str) -> str:
    behind = (_PREFIX.format(digits=r"\d" * digits) for digits in range(1, _MOST_DIGITS + 1))
    return f"(?:{anchor}|{'|'.join(f'(?<={anchor}{prefix})' for prefix in behind)})"


def _checked(number: int, regex: str, changed: str) -> str:
    if len(regex) <= LONGEST < len(changed):
        raise InvalidJob(
            f"metric_definitions[{number}].Regex: has {len(changed)} characters after ^ also matches behind the "
            f"[rank N] of a line in CloudWatch, and SageMaker accepts {LONGEST}",
            hint="Leave ^ out, or shorten the expression.",
        )
    return changed
