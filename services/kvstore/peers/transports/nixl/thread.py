"""The thread that a NIXL agent lives on.

NIXL moves nothing while nobody asks it how things go, and some calls block for as long as a copy
takes: neither is for the event loop. The thread asks without a pause while bytes move, with short
ones while something is under way that does not, and a few times a second otherwise, so that a peer
that was away can end what it had begun.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baton.telemetry.logs import get_logger
from baton.telemetry.scope import scoped_thread
from services.kvstore.peers.transports.nixl.agent import Endpoint, NixlAgent, NixlError, Transfer

log = get_logger(__name__)

IDLE_SECONDS = 0.1
"""Between looks while nothing is under way."""
LINGER_SECONDS = 0.5
"""After something was under way, or a peer was met: looks are close together for this long."""
LINGER_PAUSE_SECONDS = 0.001
SPIN_SECONDS = 2e-3
"""Since something moved: looks follow each other without a pause for this long. A pause of 20 us,
which the kernel makes 75, was measured to cost TCP up to 40 % of its rate."""
PAUSE_SECONDS = 50e-6
"""Between looks after that, while something is under way still."""
QUICK_SECONDS = 5e-6
"""A look that takes longer has moved something."""
CLOSE_SECONDS = 3.0
"""How long an agent may take to end; NIXL may wait for a peer that is away for longer."""


@dataclass(frozen=True, slots=True)
class Write:
    """A transfer that the thread is to make."""

    agent: str
    pieces: Sequence[tuple[int, int, int]]
    """As `NixlAgent.write` takes them."""
    still_right: Callable[[], bool]
    """Asked on the thread once all is written: whether it was the right bytes, throughout."""
    message: bytes
    """Told to the agent if so."""
    over: Callable[[bool], None]
    """Called on the loop once nothing is written any more, with whether all went well."""


class NixlThread:
    """See the module's text. Methods are the event loop's; whoever makes it closes it.

    Args:
        make: makes the agent, on the thread.
        told: called on the loop with what other agents say: their name and their message.
    """

    def __init__(
        self,
        make: Callable[[], NixlAgent],
        told: Callable[[str, bytes], None] = lambda _agent, _message: None,
    ) -> None:
        self._make = make
        self.told = told
        self.endpoint: Endpoint | None = None
        """Set once the agent is there."""
        self.failure = ""
        """Why there will be none."""
        self.expected = 0
        """How much other agents are asked to write; whoever asks counts."""
        self._loop = asyncio.get_running_loop()
        self._orders: deque[Callable[[NixlAgent], None]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._under_way: dict[str, tuple[Write, Transfer]] = {}
        """One per agent: the other side hears of none while bytes of another go on arriving, and
        it is to check what has come while the next comes."""
        self._waiting: dict[str, deque[Write]] = {}
        self._linger_until = self._spin_until = 0.0
        self._thread: threading.Thread | None = None

    async def close(self) -> None:
        """End the agent: nothing is written any more."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
            if self._thread.is_alive():
                log.warning("NIXL does not end: left to the end of the process")

    def start(self) -> None:
        """Make the agent, in the background, unless that was begun before."""
        if self._thread is None and not self._closing:
            self._thread = scoped_thread(self._run, "nixl")
            self._thread.start()

    def add(self, remote: Endpoint, done: Callable[[str], None]) -> None:
        """Get to know an agent; `done` is called on the loop with what went wrong, or nothing."""

        def order(agent: NixlAgent) -> None:
            try:
                agent.add(remote)
            except NixlError as error:
                self._tell(done, str(error))
            else:
                self._tell(done, "")

        self._order(order)

    def remove(self, name: str) -> None:
        """Forget an agent to which nothing is being written."""

        def order(agent: NixlAgent) -> None:
            try:
                agent.remove(name)
            except NixlError as error:
                log.info("NIXL agent not removed", error=str(error))

        self._order(order)

    def write(self, write: Write) -> None:
        """Write to an agent."""

        def order(agent: NixlAgent) -> None:
            if write.agent in self._under_way:
                self._waiting.setdefault(write.agent, deque()).append(write)
            else:
                self._begin(agent, write)

        self._order(order)

    def attend(self) -> None:
        """Something is expected from now on."""
        self._wake.set()

    def _order(self, order: Callable[[NixlAgent], None]) -> None:
        # Bounded by whoever orders: streams by their pushes, and one meeting per stream at a time.
        self._orders.append(order)
        self._wake.set()

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._closing:
            try:
                self._loop.call_soon_threadsafe(call, *arguments)
            except RuntimeError:  # the loop is closed: nobody is there to be told
                self._closing = True

    # On the thread

    def _run(self) -> None:
        try:
            agent = self._make()
        except NixlError as error:
            self.failure = str(error)
            log.warning("stores reach each other without NIXL", reason=self.failure)
            return
        self.endpoint = agent.endpoint
        while not self._closing:
            self._wake.clear()
            while self._orders:
                self._orders.popleft()(agent)
                self._linger_until = time.monotonic() + LINGER_SECONDS
            moved = self._look(agent)
            now = time.monotonic()
            if moved:
                self._spin_until = now + SPIN_SECONDS
            if self._under_way or self.expected > 0:
                self._linger_until = now + LINGER_SECONDS
                # No time at all lets the event loop have the interpreter, and is no pause.
                time.sleep(0 if now < self._spin_until else PAUSE_SECONDS)
            elif now < self._linger_until:
                self._wake.wait(LINGER_PAUSE_SECONDS)
            else:
                self._wake.wait(IDLE_SECONDS)

    def _look(self, agent: NixlAgent) -> bool:
        """Let everything go on; whether something did."""
        began = time.perf_counter()
        try:
            told = agent.progress()
        except NixlError as error:
            log.warning("NIXL is out of order", error=str(error))
            time.sleep(IDLE_SECONDS)  # it may be so at every look
            told = []
        moved = time.perf_counter() - began > QUICK_SECONDS
        for name, message in told:
            self._tell(self.told, name, message)
        for write, transfer in list(self._under_way.values()):
            done = transfer.poll()
            if done is None:
                continue
            moved = True
            del self._under_way[write.agent]
            announced = done and self._announce(agent, write)
            self._begin_next(agent, write.agent)
            self._tell(write.over, announced)
        return moved

    def _begin(self, agent: NixlAgent, write: Write) -> bool:
        try:
            self._under_way[write.agent] = (write, agent.write(write.agent, write.pieces))
        except NixlError as error:
            log.info("NIXL write failed", error=str(error))
            self._tell(write.over, False)
            return False
        return True

    def _begin_next(self, agent: NixlAgent, name: str) -> None:
        """Begin to write what waits for this agent; what cannot be begun has failed."""
        waiting = self._waiting.get(name)
        while waiting and not self._begin(agent, waiting.popleft()):
            pass
        if not waiting:
            self._waiting.pop(name, None)

    def _announce(self, agent: NixlAgent, write: Write) -> bool:
        if not write.still_right():
            return False
        try:
            agent.notify(write.agent, write.message)
        except NixlError as error:
            log.info("NIXL notification failed", error=str(error))
            return False
        return True
