"""The addresses of this machine, and the interface over which it reaches another."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

FIB_TRIE, IF_INET6, ROUTE = "/proc/net/fib_trie", "/proc/net/if_inet6", "/proc/net/route"


def own_addresses() -> list[str]:
    """This machine's addresses, without loopback addresses; empty where Linux does not list them."""
    found = []
    previous = ""
    for line in _lines(FIB_TRIE):
        if line.endswith("/32 host LOCAL") and previous not in found:
            found.append(previous)
        previous = line.rpartition(" ")[2]
    found += [_ipv6(words[0]) for words in map(str.split, _lines(IF_INET6)) if words]
    return [text for text in found if not _is_local_only(text)]


def resolve(name: str) -> list[str]:
    """The addresses of ``name`` as this machine resolves it, without loopback addresses; empty if it cannot."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)
    return [address for address in addresses if not _is_local_only(address)]


def interface_to(host: str) -> str:
    """The interface of the route to ``host``, or the one that has its address; empty if Linux does not report it.

    Sends nothing: the kernel chooses the route when a datagram socket is connected.
    """
    try:
        # like `sockets.plain`, which is not sent to hosts with this module
        name = host.encode() if host.isascii() else host
        family, _, _, _, place = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            own = ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0])
        wanted = ipaddress.ip_address(str(place[0]).partition("%")[0])
    except (OSError, ValueError):
        return ""
    if wanted.is_loopback:
        return "lo"
    if wanted.version == 6:
        rows = map(str.split, _lines(IF_INET6))
        return next((words[5] for words in rows if len(words) == 6 and _ipv6(words[0]) == str(own)), "")
    best, name = -1, ""
    for line in _lines(ROUTE)[1:]:
        words = line.split()
        if len(words) < 8:
            continue
        target, mask = _little_endian(words[1]), _little_endian(words[7])
        if int(wanted) & mask == target and bin(mask).count("1") > best:
            best, name = bin(mask).count("1"), words[0]
    return name


def is_loopback(host: str) -> bool:
    """Whether the name of a host means the local machine, on any machine."""
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        return all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found)
    return False


def _little_endian(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text)[::-1], "big")


def _ipv6(digits: str) -> str:
    return str(ipaddress.IPv6Address(bytes.fromhex(digits)))


def _is_local_only(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return True
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().splitlines()
    except OSError:
        return []
