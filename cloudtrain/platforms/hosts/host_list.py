"""Lists of hosts with their slots, as ``mpirun -H``, ``horovodrun -H`` and hostfiles name them."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cloudtrain.contract.documents import MOST_HOSTS
from cloudtrain.errors import InvalidJob

EXAMPLE = "Write names with their slots, such as server1:4,server2:4."

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SLOTS = ("slots", "cpu", "count")
_IGNORED = ("max-slots", "ifname", "binding")
"""Keys of a hostfile that concern only the launcher that reads them: limits and bindings."""
_USERS = ("user", "username", "user-name")


@dataclass(frozen=True)
class NamedHost:
    """A host as the user named it."""

    name: str
    slots: int | None = None
    """The ranks that it may run; None if the list does not give them."""
    user: str = ""
    """The user to log in as; empty for that of ssh's configuration."""

    @property
    def destination(self) -> str:
        """The destination for ssh."""
        return f"{self.user}@{self.name}" if self.user else self.name

    @property
    def is_this_machine(self) -> bool:
        """Whether the name means this machine, which needs no ssh."""
        name = self.name.lower()
        own = socket.gethostname().lower()
        if name in ("localhost", own, own.partition(".")[0]):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or _has_address(address)

    def __str__(self) -> str:
        shown = f"[{self.name}]" if ":" in self.name else self.name
        named = f"{self.user}@{shown}" if self.user else shown
        return named if self.slots is None else f"{named}:{self.slots}"


def parse_hosts(hosts: str | Sequence[str], where: str = "platform_options.hosts") -> list[NamedHost]:
    """The hosts of ``server1:4,server2:4``, or of a list of such names, in their order.

    The slots of a repeated name are added. Raises InvalidJob, which names ``where``.

    >>> [str(host) for host in parse_hosts("b:2,a:2")]
    ['b:2', 'a:2']
    """
    texts = hosts.split(",") if isinstance(hosts, str) else hosts
    return _merged((_parse(text.strip(), where) for text in texts), where)


def parse_hostfile(text: str, where: str) -> list[NamedHost]:
    """The hosts of a hostfile of Open MPI, Horovod (``server1 slots=4``) or MPICH (``server1:4``).

    Raises InvalidJob, which names the line of ``where``.
    """
    return _merged(_lines(text, where), where)


def _lines(text: str, where: str) -> Iterator[NamedHost]:
    for number, line in enumerate(text.splitlines(), 1):
        words = re.sub(r"\s*=\s*", "=", line.partition("#")[0]).split()
        if not words:
            continue
        place = f"{where}, line {number}"
        host = _parse(words[0], place)
        for word in words[1:]:
            key, _, value = word.partition("=")
            key = key.lower().replace("_", "-")
            if key in _SLOTS:
                host = replace(host, slots=_count(value, place))
            elif key in _USERS:
                host = replace(host, user=_matched(_USER, value, place))
            elif key not in _IGNORED or not value:
                raise InvalidJob(
                    f"{place}: {word!r} is not understood",
                    hint="A line is a host with its slots: server1 slots=4.",
                )
        yield host


def _parse(text: str, where: str) -> NamedHost:
    user, _, rest = text.rpartition("@")
    if user:
        _matched(_USER, user, where)
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(.*))?", rest)
    if bracketed:
        name, count = bracketed[1], bracketed[2]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise InvalidJob(f"{where}: {name!r} is not an address", hint=EXAMPLE) from None
    else:
        name, colon, number = rest.partition(":")
        count = number if colon else None
        _matched(_NAME, name, where)
    return NamedHost(name, None if count is None else _count(count, where), user)


def _matched(pattern: re.Pattern[str], text: str, where: str) -> str:
    if not pattern.fullmatch(text):
        raise InvalidJob(f"{where}: {text[:100]!r} is not a name of a host or a user", hint=EXAMPLE)
    return text


def _count(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST_HOSTS:
        raise InvalidJob(f"{where}: {text[:100]!r} is not a number of slots", hint=EXAMPLE)
    return int(text)


def _merged(hosts: Iterable[NamedHost], where: str) -> list[NamedHost]:
    found: dict[str, NamedHost] = {}
    for host in hosts:
        known = found.get(host.name)
        if known is None:
            found[host.name] = host
        else:
            found[host.name] = replace(
                known, slots=(known.slots or 1) + (host.slots or 1), user=known.user or host.user
            )
    if not found:
        raise InvalidJob(f"{where}: names no host", hint=EXAMPLE)
    if len(found) > MOST_HOSTS:
        raise InvalidJob(f"{where}: names {len(found)} hosts, more than {MOST_HOSTS}")
    return list(found.values())


def _has_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
