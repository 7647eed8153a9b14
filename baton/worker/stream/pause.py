"""Pause state of a stream's sequence in the engine."""

from contextlib import suppress

from baton.engine.base import Engine
from baton.worker.engine_loop import EngineLoop


class SequencePause:
    """Pauses and resumes one sequence in the engine. Owned by a stream, on the asyncio loop.

    However often a frontend changes its mind, at most one command waits for the engine: when it
    runs, it applies the state that is wanted then.
    """

    def __init__(self, engine_loop: EngineLoop, sequence_id: int) -> None:
        self.wanted = False
        """Whether the sequence is to be paused. Written by the asyncio loop."""
        self._engine_loop = engine_loop
        self._sequence_id = sequence_id
        self._posted = False

    def set(self, wanted: bool) -> None:
        """Pause the sequence, or resume it."""
        self.wanted = wanted
        if not self._posted:
            self._posted = True
            self._engine_loop.post(self.apply)

    def apply(self, engine: Engine) -> None:
        """Apply the wanted state, on the engine's thread."""
        self._posted = False  # first: a later change needs another command
        with suppress(KeyError):  # it is closed, or is added later, which applies this too
            if self.wanted:
                engine.pause(self._sequence_id)
            else:
                engine.resume(self._sequence_id)
