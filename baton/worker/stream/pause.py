"""Whether a stream's sequence is paused in the engine."""

from contextlib import suppress

from baton.engine.base import Engine
from baton.worker.engine_loop import EngineLoop


class SequencePause:
    """Has the engine pause and resume one sequence. Owned by a stream, on the asyncio loop.

    However often a frontend changes its mind, one command waits for the engine at most: it does
    what is wanted when it runs.
    """

    def __init__(self, engine_loop: EngineLoop, sequence_id: int) -> None:
        self.wanted = False
        """Whether the sequence is to be paused. Written by the asyncio loop."""
        self._engine_loop = engine_loop
        self._sequence_id = sequence_id
        self._posted = False

    def set(self, wanted: bool) -> None:
        """Pause the sequence, or let it go on."""
        self.wanted = wanted
        if not self._posted:
            self._posted = True
            self._engine_loop.post(self.apply)

    def apply(self, engine: Engine) -> None:
        """Do what is wanted, on the engine's thread."""
        self._posted = False  # first: what is wanted from now on takes another command
        with suppress(KeyError):  # it is closed, or added later, which applies this as well
            if self.wanted:
                engine.pause(self._sequence_id)
            else:
                engine.resume(self._sequence_id)
