"""How much every process of this host has sent to each node, in memory they share (B-36). Lost with the host.

Every process writes to a row of its own, so no addition is lost and adding needs no lock between processes. A row is
taken by a lock on one byte of the file, which the system releases however its process ends. What processes sent that
have ended counts for those that live beside or after them; but who joins and finds nobody alive begins level, for what
is long over is no reason to send the next job's records elsewhere. Locks are taken only to join and when nodes come and
go.
"""

import fcntl
import hashlib
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headgate.errors import ConfigError, SetupError
from headgate.producers.leading import Change

ROWS, NODES = 64, 1024
"""Processes and nodes; 0.5 MB, of which the system gives what is used."""
LOCK_DEADLINE_S = 10.0
_IDS, _AWAY, _BASE, _FIRST_ROW = 0, 1, 2, 3
UNCHANGED = Change(frozenset(), frozenset())
_BYTES = (_FIRST_ROW + ROWS) * NODES * 8


class HostMemory:
    """Usage of nodes = a base, which puts those that join at the level of the others (B-34), + everybody's rows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path)
        self._table: NDArray[np.int64] = np.frombuffer(mmap.mmap(self._file, _BYTES), np.int64).reshape(-1, NODES)
        self._rows = self._table[_FIRST_ROW:]
        self._own, self._pid = -1, -1
        self._within = threading.Lock()

    def slots(self, nodes: Collection[int], leading: Collection[int], change: Change = UNCHANGED) -> list[int]:
        """Where each of the live nodes is counted. `leading` are those that lead something in a view of this process,
        and `change` is what that view shows against the ones before it.

        A node joins at the level of the least used of the others that lead here, if it is below (B-34): a node that
        began to lead; one that some process saw lead no more, and none has seen lead since; and one that nobody knew.
        """
        with self._within:
            self._join()
        with self._within, self._locked():
            away = self._table[_AWAY]
            known = {int(id) - 1 for id in self._table[_IDS] if id}
            slot_of = {node: self._slot(node) for node in (*nodes, *leading, *change.ended)}
            begins = {node for node in leading if away[slot_of[node]] or node in change.began}
            stays = [slot_of[node] for node in leading if node in known and node not in begins]
            least = int(self._usage(stays).min()) if stays else 0
            for node in begins | (slot_of.keys() - known):
                below = least - int(self._usage([slot_of[node]])[0])
                self._table[_BASE, slot_of[node]] += max(0, below)
            away[[slot_of[node] for node in leading]] = 0
            away[[slot_of[node] for node in change.ended]] = 1
            return [slot_of[node] for node in nodes]

    def usage(self, slots: Sequence[int]) -> list[int]:
        return [int(value) for value in self._usage(slots)]

    def add(self, slots: Sequence[int], records: Sequence[int]) -> None:
        with self._within:  # of this process alone, and once for many records
            self._join()
            self._rows[self._own, slots] += np.asarray(records, np.int64)

    def _usage(self, slots: Sequence[int]) -> NDArray[np.int64]:
        return np.asarray(self._table[_BASE:, slots].sum(axis=0))

    def _slot(self, node: int) -> int:
        """Ids are kept one higher, so that 0 is a free slot."""
        ids = self._table[_IDS]
        known = np.flatnonzero(ids == node + 1)
        if known.size:
            return int(known[0])
        free = np.flatnonzero(ids == 0)
        if not free.size:
            raise ConfigError(f"{self._path} has room for {NODES} nodes: remove it while nobody uses it")
        ids[free[0]] = node + 1
        return int(free[0])

    def _join(self) -> None:
        """Takes a row for this process, if it has none."""
        if self._pid == os.getpid():
            return  # unless it is a child: its parent's row is its parent's
        with self._locked():
            free = [row for row in range(ROWS) if self._lock_row(row)]
            for row in free[1:]:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 1 + row)
            if not free:
                raise ConfigError(f"{ROWS} processes share {self._path} already: use sqf in the others")
            if len(free) == ROWS:
                self._table[_AWAY:] = 0  # ids stay: a child may still know its parent's slots
            self._own, self._pid = free[0], os.getpid()

    def _lock_row(self, row: int) -> bool:
        """False: somebody lives there."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1 + row)
        except OSError:
            return False
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        until = time.monotonic() + LOCK_DEADLINE_S
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                break
            except OSError:
                if time.monotonic() > until:
                    raise SetupError(
                        f"another process has held {self._path} for {LOCK_DEADLINE_S:g} s: end it, or use sqf"
                    ) from None
                time.sleep(0.001)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 0)


_open: dict[Path, HostMemory] = {}
_opening = threading.Lock()


def host_memory(name: str, folder: Path | None = None) -> HostMemory:
    """The memory of that name; one object for a process, whose closing would let go of the process' locks."""
    shared = Path("/dev/shm")
    place = folder or (shared if shared.is_dir() else Path(tempfile.gettempdir()))
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    path = place / f"headgate-sqf-2-{os.geteuid()}-{digest}"
    with _opening:
        if path not in _open:
            _open[path] = HostMemory(path)
        return _open[path]


def _opened(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetupError(f"{path} cannot be shared ({error.strerror}): choose another folder, or use sqf") from error
    if os.fstat(file).st_uid != os.geteuid():
        os.close(file)
        raise SetupError(f"{path} belongs to another user: choose another folder, or use sqf")
    os.ftruncate(file, _BYTES)  # nothing changes where it is that long already
    return file
