"""The thread that a NIXL agent runs on."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baton.telemetry.logs import get_logger
from baton.telemetry.scope import scoped_thread
from services.kvstore.peers.transports.nixl.agent import NixlAgent, NixlWrite
from services.kvstore.peers.transports.nixl.endpoint import Endpoint, NixlError

log = get_logger(__name__)

IDLE_SECONDS = 0.1
"""Pause between polls while idle."""
LINGER_SECONDS = 0.5
"""Time of frequent polls after activity, or after an agent was added."""
LINGER_PAUSE_SECONDS = 0.001
SPIN_SECONDS = 2e-3
"""Time of polling without a pause after progress. A pause of 20 us, which the kernel extends to 75,
was measured to cost TCP up to 40 % of its rate."""
PAUSE_SECONDS = 50e-6
"""Pause between polls after that, while something is still in progress."""
QUICK_SECONDS = 5e-6
"""A poll that takes longer counts as progress."""
CLOSE_SECONDS = 3.0
"""Most seconds for an agent to end; NIXL may wait longer for an unreachable peer."""


@dataclass(frozen=True, slots=True)
class NixlWriteRequest:
    """A write to another agent, and its follow-up."""

    agent: str
    pieces: Sequence[tuple[int, int, int]]
    """In the format of `NixlAgent.write`."""
    unchanged: Callable[[], bool]
    """Called on the thread after the write: whether the source bytes were unchanged throughout."""
    message: bytes
    """Notification sent to the agent if so."""
    on_done: Callable[[bool], None]
    """Called on the loop once the write has ended, with whether it succeeded."""


class NixlThread:
    """Runs an agent on its own thread: NIXL progresses only when polled, and may block.

    Owned by the process; its methods are called on the event loop. It polls without a pause while
    bytes move, with short pauses while something is in progress that does not, and a few times a
    second otherwise, so that an unreachable peer can complete what it had begun after it returns.
    Bounded by its users: streams by their pushes, and one agent per stream to be added at a time.

    Args:
        make: makes the agent, on the thread.
        on_notification: called on the loop with the agent and the message of each notification.
    """

    def __init__(
        self,
        make: Callable[[], NixlAgent],
        on_notification: Callable[[str, bytes], None] = lambda _agent, _message: None,
    ) -> None:
        self._make = make
        self.on_notification = on_notification
        self.endpoint: Endpoint | None = None
        """Set once the agent is made."""
        self.failure = ""
        """Why there is no agent."""
        self.expected = 0
        """Pushes requested from other agents, counted by their receivers."""
        self._loop = asyncio.get_running_loop()
        self._commands: deque[Callable[[NixlAgent], None]] = deque()
        self._wakeup = threading.Event()
        self._closing = False
        self._writing: dict[str, tuple[NixlWriteRequest, NixlWrite]] = {}
        """One write per agent: a peer is not notified of one while bytes of another keep arriving,
        so that it checks one while the next arrives."""
        self._waiting: dict[str, deque[NixlWriteRequest]] = {}
        self._linger_until = self._spin_until = 0.0
        self._thread: threading.Thread | None = None

    async def close(self) -> None:
        """End the agent: nothing is written any more."""
        self._closing = True
        self._wakeup.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
            if self._thread.is_alive():
                log.warning("kv.nixl.not_stopped", effect="stays until the process exits")

    def start(self) -> None:
        """Create the agent, in the background; once."""
        if self._thread is None and not self._closing:
            self._thread = scoped_thread(self._run, "nixl")
            self._thread.start()

    def add(self, remote: Endpoint, done: Callable[[str], None]) -> None:
        """Add an agent; `done` is called on the loop with the error, or an empty string."""

        def command(agent: NixlAgent) -> None:
            try:
                agent.add(remote)
            except NixlError as error:
                self._call(done, str(error))
            else:
                self._call(done, "")

        self._submit(command)

    def remove(self, name: str) -> None:
        """Remove an agent to which nothing is being written."""

        def command(agent: NixlAgent) -> None:
            try:
                agent.remove(name)
            except NixlError as error:
                log.info("kv.nixl.remove_failed", error=str(error))

        self._submit(command)

    def write(self, write: NixlWriteRequest) -> None:
        """Write to an agent."""

        def command(agent: NixlAgent) -> None:
            if write.agent in self._writing:
                self._waiting.setdefault(write.agent, deque()).append(write)
            else:
                self._begin(agent, write)

        self._submit(command)

    def wake(self) -> None:
        """Poll now: activity is expected."""
        self._wakeup.set()

    def _submit(self, command: Callable[[NixlAgent], None]) -> None:
        self._commands.append(command)
        self._wakeup.set()

    def _call(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._closing:
            try:
                self._loop.call_soon_threadsafe(call, *arguments)
            except RuntimeError:  # the loop is closed
                self._closing = True

    # On the thread

    def _run(self) -> None:
        try:
            agent = self._make()
        except NixlError as error:
            self.failure = str(error)
            effect = "using gRPC between stores"
            log.warning("kv.nixl.disabled", reason=self.failure, effect=effect)
            return
        self.endpoint = agent.endpoint
        while not self._closing:
            self._wakeup.clear()
            while self._commands:
                self._commands.popleft()(agent)
                self._linger_until = time.monotonic() + LINGER_SECONDS
            moved = self._poll(agent)
            now = time.monotonic()
            if moved:
                self._spin_until = now + SPIN_SECONDS
            if self._writing or self.expected > 0:
                self._linger_until = now + LINGER_SECONDS
                # A zero pause releases the interpreter to the event loop, and is not a real pause.
                time.sleep(0 if now < self._spin_until else PAUSE_SECONDS)
            elif now < self._linger_until:
                self._wakeup.wait(LINGER_PAUSE_SECONDS)
            else:
                self._wakeup.wait(IDLE_SECONDS)

    def _poll(self, agent: NixlAgent) -> bool:
        """Let everything progress; return whether something did."""
        began = time.perf_counter()
        try:
            notifications = agent.progress()
        except NixlError as error:
            log.warning("kv.nixl.poll_failed", error=str(error))
            time.sleep(IDLE_SECONDS)  # every poll may fail
            notifications = []
        moved = time.perf_counter() - began > QUICK_SECONDS
        for name, message in notifications:
            self._call(self.on_notification, name, message)
        for write, under_way in list(self._writing.values()):
            done = under_way.poll()
            if done is None:
                continue
            moved = True
            del self._writing[write.agent]
            notified = done and self._notify(agent, write)
            self._begin_next(agent, write.agent)
            self._call(write.on_done, notified)
        return moved

    def _begin(self, agent: NixlAgent, write: NixlWriteRequest) -> bool:
        try:
            self._writing[write.agent] = (write, agent.write(write.agent, write.pieces))
        except NixlError as error:
            log.info("kv.nixl.write_failed", error=str(error))
            self._call(write.on_done, False)
            return False
        return True

    def _begin_next(self, agent: NixlAgent, name: str) -> None:
        """Start the next write to an agent; those that cannot be started have failed."""
        waiting = self._waiting.get(name)
        while waiting and not self._begin(agent, waiting.popleft()):
            pass
        if not waiting:
            self._waiting.pop(name, None)

    def _notify(self, agent: NixlAgent, write: NixlWriteRequest) -> bool:
        if not write.unchanged():
            return False
        try:
            agent.notify(write.agent, write.message)
        except NixlError as error:
            log.info("kv.nixl.notify_failed", error=str(error))
            return False
        return True
