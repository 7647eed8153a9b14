"""Grammars of one model that are in use: each is compiled once, on dedicated threads."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

from baton.host.priority import BEHIND_STEPS, add_niceness
from baton.request.grammar import Grammar
from baton.structured.compilation import Compilation
from baton.structured.compile import CompiledGrammar, compile_grammar
from baton.structured.errors import GrammarsBusyError
from baton.structured.state import GrammarState
from baton.structured.vocabulary import Vocabulary

MAX_GRAMMARS = 256
MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of the texts of cached grammars."""
MAX_WAITING = 256
"""Maximum number of grammars that wait to be compiled."""
_THREADS = 2

Compile = Callable[[Vocabulary, Grammar], CompiledGrammar]


class Grammars:
    """Compiles grammars and caches the most recent ones, also errors. Any thread may call it."""

    def __init__(self, vocabulary: Vocabulary, compile_: Compile = compile_grammar) -> None:
        self.vocabulary = vocabulary
        self._compile = compile_
        self._lock = Lock()
        self._kept: OrderedDict[bytes, tuple[Compilation, int]] = OrderedDict()
        self._bytes = 0
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_THREADS, "grammars", add_niceness, (BEHIND_STEPS,))

    async def check(self, grammar: Grammar) -> None:
        """Compile a grammar off the event loop, or reject it.

        Raises:
            GrammarError: it is not supported.
            GrammarsBusyError: too many grammars are waiting, or this one waited too long.
        """
        await self.submit(grammar).wait()

    def get(self, grammar: Grammar) -> CompiledGrammar:
        """Return a compiled grammar; blocks if it was not checked before.

        Raises:
            GrammarError, GrammarsBusyError: as of `check`.
        """
        return self.submit(grammar).result()

    def begin(self, grammar: Grammar) -> GrammarState:
        """Return the state of an empty output; blocks and raises as `get` does."""
        return GrammarState(self.get(grammar))

    def close(self) -> None:
        """Stop the threads; waiting grammars are not compiled."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, grammar: Grammar) -> Compilation:
        """Return the compilation of a grammar, begun if there is none.

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
            compilation = Compilation(grammar.kind, partial(self._run, grammar), self._threads)
            size = len(grammar.text)
            self._kept[grammar.digest] = compilation, size
            self._bytes += size
            while len(self._kept) > MAX_GRAMMARS or self._bytes > MAX_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]
            return compilation

    def _run(self, grammar: Grammar) -> CompiledGrammar:
        try:
            return self._compile(self.vocabulary, grammar)
        finally:
            with self._lock:
                self._waiting -= 1
