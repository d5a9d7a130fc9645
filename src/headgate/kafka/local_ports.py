"""Ports of this machine: which are free, who has a taken one, and whether somebody answers there."""

import random
import socket

import psutil

from headgate.errors import SetupError
from headgate.kafka.broker_process import LOOPBACK

_ANSWER_DEADLINE_S = 2.0
# Below the ports that systems hand to outgoing connections: a client that keeps knocking while the broker is away
# must not be given the broker's own port.
_FREE_PORTS = range(20_000, 30_000)


def accepts(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_ANSWER_DEADLINE_S):
            return True
    except OSError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Kafka does: connections of an earlier life that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> int:
    """The first of `count` neighbouring free ports, at random so that two homes rarely meet."""
    for _ in range(200):
        first = random.choice(_FREE_PORTS[:-count])
        if all(_is_free(first + n) for n in range(count)):
            return first
    raise SetupError(
        f"no {count} neighbouring free ports between {_FREE_PORTS[0]} and {_FREE_PORTS[-1]}: choose one with --port"
    )


def check_free(port: int) -> None:
    if not _is_free(port):
        raise SetupError(
            f"port {port} on {LOOPBACK} is taken{_by_whom(port)}: stop what uses it, or choose another one with --port"
        )


def _by_whom(port: int) -> str:
    try:
        found = [c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid]
        return f" by {psutil.Process(found[0]).name()} (pid {found[0]})" if found else ""
    except (psutil.Error, OSError):
        return ""  # some systems show this to the administrator only
