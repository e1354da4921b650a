"""A command that must not run twice, also if the connection breaks while it runs: ``sbatch``."""

from __future__ import annotations

import os
import shlex

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.connection import ConnectionLost
from cloudtrain.platforms.batch.shell import Answer, Shell

ATTEMPTS = 3
GRACE = 10.0
"""Seconds that an answer may take in addition, on its way."""
_UNKNOWN = 75

_SCRIPT = """cd {folder} || exit
d=.once-{token}
if mkdir $d 2>/dev/null; then
    ( trap '' HUP PIPE
    ( {command}
    ) > $d/out 2> $d/err </dev/null
    echo $? > $d/new; mv $d/new $d/code ) </dev/null >/dev/null 2>&1
fi
n=0
until [ -f $d/code ]; do [ $n -lt {seconds} ] || exit {unknown}; n=$((n+1)); sleep 1; done
cat $d/out; cat $d/err >&2
code=$(cat $d/code)
exit $code
"""


def run_once(
    shell: Shell, folder: str, command: str, *, timeout: float = 60, program: str = "the command"
) -> Answer:
    """The answer of ``command``, which runs in ``folder`` once, however often the connection breaks.

    The command leaves its answer in the folder. After a broken connection, the next one finds it there.

    Args:
        timeout: in seconds.
        program: for messages.

    Raises ConnectionLost if it stays unknown whether it was carried out, PlatformError if it was not.
    """
    if not shell.place:  # without a connection that could break
        return shell.run(f"cd {shlex.quote(folder)} || exit\n{command}", timeout=timeout)
    token = os.urandom(8).hex()
    script = _SCRIPT.format(
        folder=shlex.quote(folder), token=token, command=command, seconds=int(timeout), unknown=_UNKNOWN
    )
    broken: ConnectionLost | None = None
    for _ in range(ATTEMPTS):
        try:
            answer = shell.run(script, timeout=timeout + GRACE)
        except PlatformError as error:
            if broken is None and not isinstance(error, ConnectionLost):
                raise  # no attempt has begun
            broken = ConnectionLost(error.message, hint=error.hint)
            continue
        if answer.code == _UNKNOWN and not answer.out:
            broken = ConnectionLost(f"{program} did not answer within {timeout:g} s")
            break
        return answer
    assert broken
    raise broken
