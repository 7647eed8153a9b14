"""What the work of one placement used, for the share that its tenant has of the workers."""

from time import monotonic

from baton.internal.v1 import router_pb2


class TicketUse:
    """Adds up what the streams of one placement used."""

    __slots__ = ("_began", "_first_token_seconds", "_output_tokens", "_prompt_tokens", "_unknown")

    def __init__(self) -> None:
        self._began = monotonic()
        self._first_token_seconds = 0.0
        self._prompt_tokens = self._output_tokens = 0
        self._unknown = False

    def add_prompt(self, computed_tokens: int | None) -> None:
        """Add what a stream computed of the prompt; None: it began and did not say."""
        if computed_tokens is None:
            self._unknown = True
        else:
            self._prompt_tokens += computed_tokens

    def add_output(self, tokens: int) -> None:
        """Add output tokens that no other placement gave."""
        self._output_tokens += tokens

    def see_token(self, now: float) -> None:
        """Note when a stream gave its first token; the earliest one counts."""
        if not self._first_token_seconds:
            self._first_token_seconds = now - self._began

    def to_proto(self) -> router_pb2.TicketUsage | None:
        """Return the use, without a ticket's name; None where not all of it is known."""
        if self._unknown:
            return None
        return router_pb2.TicketUsage(
            computed_prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            first_token_seconds=self._first_token_seconds,
        )
