"""Records what passes the network interface of a machine: python sniffer.py PORT FILE. Prints ``ready`` first."""

from __future__ import annotations

import socket
import sys

EVERY_PROTOCOL = 3


def main(port: int, path: str) -> None:
    with open(path, "ab", buffering=0) as file, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as tap:
        tap.bind(("eth0", EVERY_PROTOCOL))
        print("ready", flush=True)
        while True:
            frame = tap.recv(1 << 16)
            if port in (int.from_bytes(frame[34:36], "big"), int.from_bytes(frame[36:38], "big")):
                file.write(frame[54:])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
