"""The expressions of ``cloudtrain list --where``: comparisons in Python's syntax, with ``and``, ``or`` and ``not``.

They are parsed but never evaluated: `cloudtrain.history.sql` translates them to SQL, and passes values as parameters.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from cloudtrain.contract.text import is_text
from cloudtrain.errors import InvalidJob

LONGEST = 10_000
"""The most characters of an expression."""
LARGEST = 200
"""The most comparisons and combinations in an expression, because databases limit both."""
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.NotEq: "<>", ast.Is: "=", ast.IsNot: "<>",
}  # fmt: skip
SYNTAX = "Write comparisons, and combine them with and, or, not: --where 'loss < 0.3 and lr > 0.01'"

Constant = str | float | bool | None


class InvalidQuery(InvalidJob):
    """An expression of ``--where``, or a name in it, in ``--sort`` or in ``--columns``, is invalid."""


@dataclass(frozen=True)
class Name:
    """The name of a field, parameter or metric as written, such as ``loss``, ``params.lr``, ``metrics["a b"].min``."""

    parts: tuple[str, ...]
    """The parts of the name; several if it is qualified."""
    column: int
    """Its position in the expression, counted from 1."""

    @property
    def text(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Literal:
    """A value; for ``in``, several values in parentheses or brackets."""

    value: Constant | tuple[Constant, ...]
    column: int


@dataclass(frozen=True)
class Comparison:
    left: Name | Literal
    operator: str
    """The SQL operator: one of `COMPARISONS`, ``IN`` or ``NOT IN``."""
    right: Name | Literal


@dataclass(frozen=True)
class Combination:
    """``operator`` is ``AND``, ``OR`` or, with one part, ``NOT``."""

    operator: str
    parts: Sequence[Condition]


Condition = Comparison | Combination


def parse(text: str) -> Condition:
    """The condition that ``text`` expresses. Raises InvalidQuery with the position of the error."""
    if len(text) > LONGEST:
        raise InvalidQuery(f"--where: has more than {LONGEST:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escape sequences in strings
            tree = ast.parse(text.strip().replace("\n", " "), mode="eval")
    except SyntaxError as error:
        raise _error(error.offset or 1, "is not a condition", text) from None
    except (ValueError, RecursionError, MemoryError):
        raise _error(1, "is not a condition", text) from None
    reader = _Reader(text.strip().replace("\n", " "))
    try:
        return reader.condition(tree.body)
    except RecursionError:
        raise _error(1, "is too deep", text) from None


def parse_name(text: str, option: str) -> Name:
    """The name in ``text``. Characters such as dashes, which must be quoted in an expression, are allowed."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        name = _Reader(text.strip()).name(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        name = None
    if name is None and text.strip():
        return Name((text.strip(),), 1)
    if name is None:
        raise InvalidQuery(f"{option}: a name is empty", hint=SYNTAX)
    return name


def _error(column: int, problem: str, text: str, hint: str = SYNTAX) -> InvalidQuery:
    rest = text.strip()[column - 1 : column + 29]
    return InvalidQuery(
        f"--where, column {column}: {rest!r} {problem}" if rest else f"--where: {problem}", hint=hint
    )


class _Reader:
    """Turns nodes of Python's syntax tree into conditions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._bytes = text.encode("utf-8", "surrogatepass")
        self._size = 0

    def condition(self, node: ast.expr) -> Condition:
        self._size += 1 + len(getattr(node, "comparators", ()))
        if self._size > LARGEST:
            raise self.error(node, "and the rest are too many comparisons")
        if isinstance(node, ast.BoolOp):
            operator = "AND" if isinstance(node.op, ast.And) else "OR"
            return Combination(operator, [self.condition(part) for part in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Combination("NOT", [self.condition(node.operand)])
        if isinstance(node, ast.Compare):
            operands = [self.operand(part) for part in (node.left, *node.comparators)]
            pairs = zip(operands, node.ops, operands[1:], strict=False)
            compared = [self._comparison(left, found, right) for left, found, right in pairs]
            return compared[0] if len(compared) == 1 else Combination("AND", compared)
        raise self.error(node, "is not a comparison")

    def _comparison(self, left: Name | Literal, found: ast.cmpop, right: Name | Literal) -> Comparison:
        if isinstance(found, (ast.In, ast.NotIn)):
            if not (isinstance(left, Name) and isinstance(right, Literal) and isinstance(right.value, tuple)):
                hint = 'Write a name, in, and values in parentheses: status in ("Failed", "Stopped")'
                raise _error(left.column, "cannot be looked for there", self._text, hint)
            return Comparison(left, "IN" if isinstance(found, ast.In) else "NOT IN", right)
        for side in (left, right):
            if isinstance(side, Literal) and isinstance(side.value, tuple):
                raise _error(side.column, "can only follow in", self._text)
        return Comparison(left, COMPARISONS[type(found)], right)

    def operand(self, node: ast.expr) -> Name | Literal:
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return Literal(tuple(self._constant(part) for part in node.elts), self.column(node))
        name = self.name(node)
        return name if name else Literal(self._constant(node), self.column(node))

    def _constant(self, node: ast.expr) -> Constant:
        sign = 1.0
        value: ast.expr = node
        while isinstance(value, ast.UnaryOp) and isinstance(value.op, (ast.USub, ast.UAdd)):
            sign = -sign if isinstance(value.op, ast.USub) else sign
            value = value.operand
        if isinstance(value, ast.Constant):
            found = value.value
            if isinstance(found, (int, float)) and not isinstance(found, bool):
                try:
                    return sign * float(found)
                except OverflowError:
                    raise self.error(node, "is too large") from None
            if isinstance(found, str) and not is_text(found):
                raise self.error(node, "has characters that are not text")
            if value is node and (found is None or isinstance(found, (str, bool))):
                return found
        raise self.error(node, "is neither a name nor a value")

    def name(self, node: ast.expr) -> Name | None:
        """The name in a node; None if it is not a name. As there is no arithmetic, ``val/accuracy`` and
        ``learning-rate`` are names, too."""
        parts = self._parts(node)
        return Name(parts, self.column(node)) if parts else None

    def _parts(self, node: ast.expr) -> tuple[str, ...]:
        if isinstance(node, ast.Name):
            return (node.id,)
        if isinstance(node, ast.Attribute):
            before = self._parts(node.value)
            return (*before, node.attr) if before else ()
        if isinstance(node, ast.Subscript):
            before, key = self._parts(node.value), node.slice
            is_text = isinstance(key, ast.Constant) and isinstance(key.value, str)
            return (*before, key.value) if before and is_text else ()  # type: ignore[attr-defined]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Sub)):
            left, right = self._parts(node.left), self._parts(node.right)
            if left and right:
                joined = f"{left[-1]}{'/' if isinstance(node.op, ast.Div) else '-'}{right[0]}"
                return (*left[:-1], joined, *right[1:])
        return ()

    def column(self, node: ast.expr) -> int:
        """The position of a node in characters, counted from 1."""
        return len(self._bytes[: node.col_offset].decode("utf-8", "replace")) + 1

    def error(self, node: ast.expr, problem: str) -> InvalidQuery:
        return _error(self.column(node), problem, self._text)
