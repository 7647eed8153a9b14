"""TCP connections between processes that break on purpose.

Every process is reached through a proxy, so that the path between any two processes can be changed:
a rule names both, and applies to open and new connections.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

Kind = Literal["delay", "stall", "reset", "half-open", "black-hole"]
CHUNK_BYTES = 1 << 16
MOST_WAITING_BYTES = 1 << 22
"""Limit per direction of a connection; beyond it the sender waits, as for a receiver's window."""
_LISTENING_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Rule:
    """The effect on bytes between two processes, in both directions.

    `delay`: each chunk arrives `seconds` later, plus up to `jitter_seconds`. `stall`: a `share` of
    the chunks arrive this much later, as after a lost and retransmitted packet, and everything
    after them waits. `reset`: the connection breaks at a `share` of the chunks. `half-open`: the
    server loses the connection, and the client is not notified. `black-hole`: nothing arrives until
    the rule ends.
    """

    kind: Kind
    client: str = "*"
    """A pattern of ids, such as `frontend-*`, for the process that connects."""
    server: str = "*"
    seconds: float = 0.0
    jitter_seconds: float = 0.0
    share: float = 1.0

    def holds_for(self, client: Callable[[], str], server: str) -> bool:
        """Return whether the rule applies to this pair; looks up the client only if needed."""
        if not fnmatchcase(server, self.server):
            return False
        return self.client == "*" or fnmatchcase(client(), self.client)


class Links:
    """The proxies of a cluster's processes, and the rules for their traffic.

    Args:
        draw: makes the random choices.
    """

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.rules: list[Rule] = []
        self.changed = asyncio.Event()
        """Set, and replaced, whenever the rules change."""
        self.struck: Counter[str] = Counter()
        """Number of chunks and connections affected by a rule, by the rule's kind."""
        self.pids: Mapping[int, str] = {}
        """The id of each process."""
        self._listeners: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, server: str, port: int, target_port: int) -> None:
        """Forward connections to `port` to a process's own port."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                peer_port = int(writer.get_extra_info("peername")[1])
                connection = _Connection(self, (peer_port, port), server, target_port)
                with suppress(OSError, asyncio.CancelledError):  # it broke, or all are closed
                    await connection.run(reader, writer)
            finally:
                self._tasks.discard(task)
                writer.transport.abort()

        self._listeners.append(
            await asyncio.start_server(accept, _LISTENING_HOST, port, limit=CHUNK_BYTES)
        )

    def set_rules(self, rules: Iterable[Rule]) -> None:
        """Replace the rules; none: everything passes."""
        self.rules = list(rules)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def close(self) -> None:
        """Stop listening and break every connection."""
        for listener in self._listeners:
            listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    """One connection through a proxy."""

    def __init__(self, links: Links, ports: tuple[int, int], server: str, target_port: int) -> None:
        self._links = links
        self._ports = ports
        self._client = ""
        self._server = server
        self._target_port = target_port

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.wait_passable()
        try:
            there, back = await asyncio.open_connection(_LISTENING_HOST, self._target_port)
        except OSError:  # nothing listens: the client sees its connection closed
            return
        tasks = [
            asyncio.create_task(_Half(self, there, writer).run()),
            asyncio.create_task(_Half(self, reader, back).run()),
            asyncio.create_task(self._wait_half_open(back)),
        ]
        both = asyncio.gather(*tasks[:2])
        try:
            await asyncio.wait((both, tasks[2]), return_when=asyncio.FIRST_COMPLETED)
            if tasks[2].done():  # the client is not notified
                both.cancel()
                await asyncio.gather(both, return_exceptions=True)
                with suppress(OSError):
                    while await reader.read(CHUNK_BYTES):
                        pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(both, *tasks, return_exceptions=True)
            back.transport.abort()

    def client(self) -> str:
        """Return the id of the connected process. Slow the first time."""
        if not self._client:
            pid = owner(*self._ports, self._links.pids)
            self._client = self._links.pids.get(pid, "bench")
        return self._client

    def rule(self, *kinds: Kind) -> Rule | None:
        """Return the first rule of these kinds that applies here."""
        for rule in self._links.rules:
            if rule.kind in kinds and rule.holds_for(self.client, self._server):
                return rule
        return None

    def lateness(self) -> float:
        """Return the delay of the next chunk in seconds."""
        rule = self.rule("delay", "stall")
        if rule is None or self._links.draw.random() >= rule.share:
            return 0.0
        self._links.struck[rule.kind] += 1
        return rule.seconds + self._links.draw.random() * rule.jitter_seconds

    def breaks(self) -> bool:
        """Return whether the connection breaks at the next chunk, at random."""
        rule = self.rule("reset")
        if rule is None or self._links.draw.random() >= rule.share:
            return False
        self._links.struck["reset"] += 1
        return True

    async def wait_passable(self) -> None:
        """Return once no rule discards what is sent."""
        if self.rule("black-hole") is not None:
            self._links.struck["black-hole"] += 1
        while self.rule("black-hole") is not None:
            await self._links.changed.wait()

    async def _wait_half_open(self, back: asyncio.StreamWriter) -> None:
        while self.rule("half-open") is None:
            await self._links.changed.wait()
        self._links.struck["half-open"] += 1
        back.transport.abort()


class _Half:
    """One direction of a connection: chunks, and when each must arrive."""

    def __init__(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._writer = writer
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._waiting_bytes = 0
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Return once the sender has closed and everything has arrived.

        Raises:
            OSError: the connection broke.
        """
        writing = asyncio.create_task(self._write())
        try:
            await asyncio.gather(self._read(), writing)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        last = 0.0
        while True:
            data = await self._reader.read(CHUNK_BYTES)
            if data and self._connection.breaks():
                raise ConnectionResetError
            last = max(last, loop.time() + self._connection.lateness())
            self._waiting.append((last, data))
            self._waiting_bytes += len(data)
            self._moved.set()
            if not data:
                return
            while self._waiting_bytes > MOST_WAITING_BYTES:
                self._moved.clear()
                await self._moved.wait()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._moved.clear()
                await self._moved.wait()
            due, data = self._waiting.popleft()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self._connection.wait_passable()
            if not data:
                if not self._writer.is_closing():
                    self._writer.write_eof()
                return
            self._waiting_bytes -= len(data)
            self._moved.set()
            if self._writer.is_closing():
                raise ConnectionResetError
            self._writer.write(data)
            await self._writer.drain()


def owner(port: int, peer_port: int, pids: Iterable[int]) -> int:
    """Return which process has the socket of a local connection; 0: none.

    Args:
        port: the socket's own port.
        peer_port: the port that it is connected to.
        pids: the processes to check.
    """
    inode = ""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (_port(fields[1]), _port(fields[2])) == (port, peer_port):
            inode = fields[9]
    for pid in pids:
        with suppress(OSError):  # the process ended
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(entry.readlink()) == f"socket:[{inode}]":
                        return pid
    return 0


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
