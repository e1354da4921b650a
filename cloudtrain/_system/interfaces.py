"""The network interfaces of this machine, and the one that leads to another machine."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.platform == "linux":
    import fcntl

    _SIOCGIFADDR = 0x8915
    """See netdevice(7)."""

    def _addresses() -> Iterator[tuple[str, str]]:
        """Pairs of an interface and one of its addresses."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # without an IPv4 address
                    request = name.encode()[:15].ljust(256, b"\0")
                    answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
                    yield name, socket.inet_ntoa(answer[20:24])
        with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as file:
            for line in file:
                digits, *_, name = line.split()
                yield name, str(ipaddress.IPv6Address(int(digits, 16)))

else:

    def _addresses() -> Iterator[tuple[str, str]]:
        """Other systems have no nodes of clusters."""
        return iter(())


def interface_to(host: str) -> str:
    """The interface of the route from this machine to ``host``; empty if it is not known.

    Sends nothing: the kernel chooses the route when a datagram socket is connected.
    """
    with contextlib.suppress(OSError):
        family, _, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)
            own = ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0])
        if own.is_loopback:  # also 127.0.0.3, an address that the interface does not list
            own = ipaddress.ip_address("127.0.0.1" if own.version == 4 else "::1")
        return next((name for name, address in _addresses() if address == str(own)), "")
    return ""


def is_loopback(host: str) -> bool:
    """Whether the name of a host means this machine itself, on any machine."""
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        return all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found)
    return False
