"""Grammars of one model that are in use: each is compiled once, on dedicated threads."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Lock

from baton.host.priority import BEHIND_STEPS, add_niceness
from baton.request.grammar import Grammar
from baton.structured.compile import CompiledGrammar, compile_grammar
from baton.structured.errors import GrammarError, GrammarsBusyError
from baton.structured.limits import COMPILE_SECONDS
from baton.structured.state import GrammarState
from baton.structured.vocabulary import Vocabulary

MAX_GRAMMARS = 256
MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of the texts of cached grammars."""
MAX_WAITING = 256
"""Maximum number of grammars that wait to be compiled."""
_THREADS = 2
_TOO_COMPLEX = f"compilation took more than {COMPILE_SECONDS:g} s; simplify it"

Compile = Callable[[Vocabulary, Grammar], CompiledGrammar]


class Grammars:
    """Compiles grammars and caches the most recent ones, also errors. Any thread may call it."""

    def __init__(self, vocabulary: Vocabulary, compile_: Compile = compile_grammar) -> None:
        self.vocabulary = vocabulary
        self._compile = compile_
        self._lock = Lock()
        self._kept: OrderedDict[bytes, tuple[Future[CompiledGrammar], int]] = OrderedDict()
        self._bytes = 0
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_THREADS, "grammars", add_niceness, (BEHIND_STEPS,))

    async def check(self, grammar: Grammar) -> None:
        """Compile a grammar off the event loop, or reject it.

        Raises:
            GrammarError: it is not supported.
            GrammarsBusyError: too many grammars are waiting.
        """
        compiled = asyncio.wrap_future(self.submit(grammar))
        try:
            await asyncio.wait_for(asyncio.shield(compiled), COMPILE_SECONDS)
        except TimeoutError:
            compiled.add_done_callback(_retrieve)
            raise GrammarError(f"{grammar.kind}: {_TOO_COMPLEX}") from None

    def get(self, grammar: Grammar) -> CompiledGrammar:
        """Return a compiled grammar; blocks if it was not checked before.

        Raises:
            GrammarError, GrammarsBusyError: as of `check`.
        """
        try:
            return self.submit(grammar).result(COMPILE_SECONDS)
        except FutureTimeoutError:
            raise GrammarError(f"{grammar.kind}: {_TOO_COMPLEX}") from None

    def begin(self, grammar: Grammar) -> GrammarState:
        """Return the state of an empty output; blocks and raises as `get` does."""
        return GrammarState(self.get(grammar))

    def close(self) -> None:
        """Stop the threads; waiting grammars are not compiled."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, grammar: Grammar) -> Future[CompiledGrammar]:
        """Return a future of the compiled grammar, or of its error.

        Raises:
            GrammarsBusyError: too many grammars are waiting.
        """
        with self._lock:
            found = self._kept.get(grammar.digest)
            if found is not None:
                self._kept.move_to_end(grammar.digest)
                return found[0]
            if self._waiting >= MAX_WAITING:
                raise GrammarsBusyError("too many grammars are waiting to be compiled; retry later")
            self._waiting += 1
            future = self._threads.submit(self._run, grammar)
            size = len(grammar.text)
            self._kept[grammar.digest] = future, size
            self._bytes += size
            while len(self._kept) > MAX_GRAMMARS or self._bytes > MAX_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]
            return future

    def _run(self, grammar: Grammar) -> CompiledGrammar:
        try:
            return self._compile(self.vocabulary, grammar)
        finally:
            with self._lock:
                self._waiting -= 1


def _retrieve(future: "asyncio.Future[CompiledGrammar]") -> None:
    """Retrieve an error for which no caller waits any more."""
    if not future.cancelled():
        future.exception()
