"""Launches with ``mpirun`` of MPICH (hydra), on any number of hosts, without ssh.

As with Open MPI, hydra calls a remote shell for every host but the first one, and that host's runtime starts hydra's
proxy. hydra waits for all ranks after one has failed: the runtime does not, and ends them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudtrain.contract import RankSlot
from cloudtrain.errors import InvalidJob

_SAME = frozenset(("-bind-to", "-map-by", "-membind"))
"""Options with one value that both have."""
_DEFAULTS = frozenset((("-bind-to", "none"), ("-map-by", "slot")))
"""hydra does the same without them; it does not know ``slot``."""
_DROPPED = frozenset(
    ("-verbose", "-v", "-q", "-quiet", "-allow-run-as-root", "-oversubscribe", "-tag-output")
)
"""Options of Open MPI that hydra does not have, and does not need."""
_OF_OPEN_MPI = frozenset(("-mca", "-gmca", "-prtemca", "-pmixmca"))


def command(
    path: str,
    slot: RankSlot,
    nodes: Sequence[str],
    programs: Sequence[tuple[int, Sequence[str], Mapping[str, str]]],
    environment: Mapping[str, str],
    options: Sequence[str],
    *,
    remote_shell: str,
) -> tuple[str, ...]:
    """The command line of hydra's mpirun.

    Args:
        nodes: their names; those after the first are names for the remote shell.
        programs: the number of ranks, the command of a rank, and its own variables of each.
        environment: of the ranks. PATH and TMPDIR of mpirun differ.
        options: the user's, which may be those of Open MPI.

    Raises:
        InvalidJob: an option is not one of MPICH.
    """
    line = [
        path,
        *("-rmk", "user", "-launcher", "ssh", "-launcher-exec", remote_shell),  # also inside an allocation
        *("-localhost", environment["MASTER_ADDR"]),  # where its proxies on other hosts find it
        *("-hosts", ",".join(f"{node}:{slot.local_size}" for node in nodes)),
        "-genvnone",  # otherwise, ranks would have the environment of the first host
        *("-genv", "PATH", environment["PATH"]),
        *("-genv", "TMPDIR", environment["TMPDIR"]),
        *translate(options, environment),
    ]
    for number, (ranks, rank_command, variables) in enumerate(programs):
        line += [":"] if number else []
        for name, value in variables.items():
            line += ["-env", name, value]
        line += ["-np", str(ranks), *rank_command]
    return tuple(line)


def translate(options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Options of Open MPI as those of hydra. Raises InvalidJob.

    >>> translate(["-x", "A=1", "--bind-to", "core", "-map-by", "slot"], {})
    ['-genv', 'A', '1', '-bind-to', 'core']
    """
    translated: list[str] = []
    rest = iter(options)
    for option in rest:
        plain = option[1:] if option.startswith("--") else option
        if plain == "-x":
            name, equals, value = next(rest, "").partition("=")
            translated += ["-genv", name, value if equals else environment.get(name, "")]
        elif plain in _SAME:
            value = next(rest, "")
            translated += [] if (plain, value) in _DEFAULTS else [plain, value]
        elif plain in _OF_OPEN_MPI:
            raise InvalidJob(
                f"custom_mpi_options: {option} is an option of Open MPI, and the mpirun of this job is MPICH's",
                hint="Leave it out, or put the mpirun of Open MPI first on the PATH.",
            )
        elif plain not in _DROPPED:
            translated.append(plain)
    return translated


def environment(interface: str) -> dict[str, str]:
    """Defaults for the ranks: on one machine, they listen on the loopback interface only.

    Args:
        interface: the network for traffic between ranks.
    """
    if interface != "lo":
        return {}
    return {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo", "FI_SOCKETS_IFACE": "lo"}
