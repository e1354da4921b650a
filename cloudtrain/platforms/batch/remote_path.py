"""Paths on a cluster, such as ``$SCRATCH/cloudtrain``, whose variables are set only there."""

from __future__ import annotations

import os
import re
import shlex
from urllib.parse import unquote_to_bytes, urlsplit

from cloudtrain.errors import InvalidJob

UNSET = 46
"""The exit code of `prologue` for a variable without a value."""

_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")

_ASK = """[ -n "${name}" ] || {name}=$( (bash -lc 'printf "\\n%s" "${name}"' || sh -lc 'printf "\\n%s" "${name}"') \\
</dev/null 2>/dev/null | tail -n 1)
[ -n "${name}" ] || {{ echo {name} >&2; exit {unset}; }}
"""


def _expanded(path: str) -> str:
    return "$HOME" + path[1:] if path == "~" or path.startswith("~/") else path


def check_path(path: str, field: str) -> None:
    """Raises InvalidJob unless ``path`` is absolute on the cluster."""
    absolute = _expanded(path)
    if not (absolute.startswith("/") or _VARIABLE.match(absolute)) or "\0" in path or "\n" in path:
        raise InvalidJob(
            f"{field}: {path!r} is not an absolute path",
            hint="Begin it with / or with a variable of the cluster, such as $HOME or $SCRATCH.",
        )


def variables(path: str) -> list[str]:
    """The names of the variables in ``path``."""
    return list(dict.fromkeys(first or second for first, second in _VARIABLE.findall(_expanded(path))))


def uri_path(uri: str) -> str:
    """The path of a ``file://`` URI on the cluster."""
    return os.fsdecode(unquote_to_bytes(urlsplit(uri).path))


def quoted_path(uri: str) -> str:
    """The path of a ``file://`` URI, quoted for ``/bin/sh``."""
    return shlex.quote(uri_path(uri))


def prologue(path: str) -> str:
    """Lines for ``/bin/sh`` that give each variable in ``path`` the value it has in a login shell."""
    return "".join(_ASK.format(name=name, unset=UNSET) for name in variables(path))


def quoted(path: str) -> str:
    """``path``, quoted for ``/bin/sh``. Only its variables are expanded."""
    word, end, path = "", 0, _expanded(path)
    for found in _VARIABLE.finditer(path):
        word += shlex.quote(path[end : found.start()]) if found.start() > end else ""
        word += f'"${{{found[1] or found[2]}}}"'
        end = found.end()
    return word + (shlex.quote(path[end:]) if end < len(path) or not word else "")


OPEN = 48
"""The exit code if another user could change or replace a folder. Stderr names the folder and the reason."""

OWN_FOLDER = f"""open() {{ echo "$own $*" >&2; exit {OPEN}; }}
own_folder() {{
own=$(cd "$1" && pwd -P) || exit
case $1 in /*) p=$1;; *) p=$PWD/$1;; esac
group= me=$(id -u)
while [ "$p" ]; do
if [ -L "$p" ]; then set -f; set -- $(LC_ALL=C ls -ldn "$p"); set +f
[ "$3" = 0 ] || [ "$3" = "$me" ] || open "leads through $p, a link of another user"; fi
p=${{p%/*}}
done
p=$own
while :; do
set -f; set -- $(LC_ALL=C ls -ldn "$p/"); set +f
if [ "$3" != 0 ] && [ "$3" != "$me" ]; then
[ "$p" = "$own" ] && open "belongs to another user"
open "can be replaced by the owner of $p, another user"; fi
case $1 in ?????w*|????????w*)
if [ "$p" = "$own" ]; then chmod go-w "$p" || open "can be written by other users"; else case $1 in
?????????[tT]*) ;;
????????w*) open "can be replaced by other users: all may write to $p";;
*+) group=$p;;
*) [ "$4" = 0 ] || {{ [ "$4" = "$(id -g)" ] && [ "$(id -gn)" = "$(id -un)" ]; }} || group=$p;;
esac; fi;; esac
case $1 in ??????[-S]??[-T]*) [ "$p" = "$own" ] || [ "$p" = "$group" ] || group=;; esac
[ "$p" ] && [ "$p" != / ] || break
p=${{p%/*}}
done
[ -z "$group" ] || open "can be replaced by other users: its group may write to $group"
}}
"""
"""``own_folder FOLDER`` ends the script with `OPEN`, unless only this user and root can change and replace the folder.

The output of ``pwd -P`` has no links, and no other user can put one into a folder that passes. Group write permission
is harmless for the user's own group without an ACL, and below a folder that only its owner can enter.
"""

OPEN_HINT = "Choose a folder of your own, in folders that belong to you or to root, or close that one with chmod go-w."
