"""`fewshift web` in a process of its own that writes down every host it looks up or connects to.

Usage: watched_server.py HOSTS_FILE ARGUMENTS...
"""

import socket
import sys
from typing import Any

from fewshift.cli import main

hosts = sys.argv.pop(1)
connect, look_up = socket.socket.connect, socket.getaddrinfo


def note(host: Any) -> None:
    with open(hosts, "a") as file:
        file.write(f"{host}\n")


def watched_connect(self: socket.socket, address: Any) -> None:
    if isinstance(address, tuple):
        note(address[0])
    connect(self, address)


def watched_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
    note(host)
    return look_up(host, *args, **kwargs)


socket.socket.connect = watched_connect  # type: ignore[method-assign]
socket.getaddrinfo = watched_look_up
main()
