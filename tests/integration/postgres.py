"""A PostgreSQL server of our own: Debian's binaries, an unprivileged user, a loopback port, a temporary folder."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port

_DEADLINE_S = 120


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    password: str
    stop: Callable[[], None]
    start: Callable[[], None]
    """Again, after `stop`."""

    def uri(self, password: str | None = None) -> str:
        return f"postgresql+psycopg2://lake:{password or self.password}@127.0.0.1:{self.port}/postgres"


def binaries() -> Path | None:
    """Where initdb and pg_ctl are: on the PATH, or where Debian puts them; the newest version."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


@contextmanager
def server() -> Iterator[Server]:
    folder, found = Path(tempfile.mkdtemp(prefix="headgate-postgres-")), binaries()
    assert found is not None
    # The server refuses to run as root, and must own its folder.
    as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    password, data = secrets.token_hex(12), folder / "data"
    (folder / "password").write_text(password)
    if as_user:
        for path in (folder, folder / "password"):
            shutil.chown(path, "nobody", "nogroup")
    port = free_port()

    def run(*command: str) -> None:
        log = folder / "commands.log"
        with log.open("ab") as output:  # a pipe would stay open as long as the server runs
            done = subprocess.run(
                command,
                cwd=folder,
                stdout=output,
                stderr=output,
                timeout=_DEADLINE_S,
                **as_user,  # type: ignore[call-overload]
            )
        assert done.returncode == 0, log.read_text()

    try:
        run(f"{found}/initdb", "-D", str(data), "-U", "lake", "-A", "scram-sha-256", "--pwfile", f"{folder}/password")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        starting = ("start", "-w", "-D", str(data), "-l", str(folder / "server.log"), "-o", options)
        stopping = ("stop", "-w", "-m", "fast", "-D", str(data))
        run(f"{found}/pg_ctl", *starting)
        try:
            yield Server(
                port, password, lambda: run(f"{found}/pg_ctl", *stopping), lambda: run(f"{found}/pg_ctl", *starting)
            )
        finally:
            run(f"{found}/pg_ctl", *stopping)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
