"""A compilation on a thread of its own, and how long a caller waits for it."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import get_ident

from baton.structured.compile import CompiledGrammar
from baton.structured.errors import GrammarError, GrammarsBusyError
from baton.structured.limits import COMPILE_CPU_SECONDS, COMPILE_SECONDS

_MIN_SECONDS = 0.05


class Compilation:
    """A grammar that is compiled, was, or waits to be.

    The thread's CPU time says whether a grammar is too complex: what the wall clock counts is also
    the machine's other work.

    Args:
        kind: of the grammar; errors begin with it.
        compile_: returns the compiled grammar, or raises GrammarError.
        threads: one of them compiles.
    """

    def __init__(
        self, kind: str, compile_: Callable[[], CompiledGrammar], threads: ThreadPoolExecutor
    ) -> None:
        self._kind = kind
        self._compile = compile_
        self._cpu: tuple[int, float] | None = None
        """The thread's CPU clock, and what it showed before."""
        self._future = threads.submit(self._run)

    def _run(self) -> CompiledGrammar:
        clock = time.pthread_getcpuclockid(get_ident())
        self._cpu = clock, time.clock_gettime(clock)
        return self._compile()

    def done(self) -> bool:
        """Return whether it ended, with a grammar or an error."""
        return self._future.done()

    async def wait(self) -> CompiledGrammar:
        """Wait for the compiled grammar.

        Raises:
            GrammarError: it is not supported, or takes more than COMPILE_CPU_SECONDS.
            GrammarsBusyError: it was not compiled within COMPILE_SECONDS; a retry may find it.
        """
        compiled = asyncio.wrap_future(self._future)
        compiled.add_done_callback(_retrieve)
        ends = time.monotonic() + COMPILE_SECONDS
        while True:
            done, _ = await asyncio.wait((compiled,), timeout=self._left())
            if done:
                return compiled.result()
            self._refuse(ends)

    def result(self) -> CompiledGrammar:
        """Block until the grammar is compiled; raises as `wait` does."""
        ends = time.monotonic() + COMPILE_SECONDS
        while True:
            try:
                return self._future.result(self._left())
            except FutureTimeoutError:
                self._refuse(ends)

    def _left(self) -> float:
        """Return the seconds after which it may be known that the grammar is too complex."""
        return max(_MIN_SECONDS, COMPILE_CPU_SECONDS - self._used())

    def _used(self) -> float:
        if self._cpu is None or self._future.done():
            return 0.0
        clock, before = self._cpu
        return time.clock_gettime(clock) - before

    def _refuse(self, ends: float) -> None:
        if self._used() >= COMPILE_CPU_SECONDS:
            raise GrammarError(
                f"{self._kind}: compilation took more than {COMPILE_CPU_SECONDS:g} s; simplify it"
            )
        if time.monotonic() >= ends:
            raise GrammarsBusyError(
                f"the grammar was not compiled within {COMPILE_SECONDS:g} s; retry later"
            )


def _retrieve(future: "asyncio.Future[CompiledGrammar]") -> None:
    """Retrieve an error, for which a caller may not wait any more."""
    if not future.cancelled():
        future.exception()
