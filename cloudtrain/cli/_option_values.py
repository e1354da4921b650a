"""Completes ``--option=value``, which each shell passes in its own form."""

from __future__ import annotations

from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)


class _Whole(ShellComplete):
    """For a shell that replaces all of ``--option=value``: the completion begins with the option."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if equals and option.startswith("--"):
            for item in found:
                item.value = f"{option}={item.value}"
        return found


class _Bash(_Whole, BashComplete):
    def get_completion_args(self) -> tuple[list[str], str]:
        """The arguments without "=", which bash passes as a separate argument after ``--option``."""
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete


class _Fish(_Whole, FishComplete):
    pass


class _Zsh(_Whole, ZshComplete):
    pass


def register() -> None:
    """Have click use these classes."""
    for kind in (_Bash, _Fish, _Zsh):
        add_completion_class(kind)
