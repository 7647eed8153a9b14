"""The use of one placement, charged to its tenant's share of the workers."""

from time import monotonic

from baton.internal.v1 import router_pb2


class TicketUse:
    """Sums the use of one placement's streams."""

    __slots__ = ("_began", "_first_token_seconds", "_output_tokens", "_prompt_tokens", "_unknown")

    def __init__(self) -> None:
        self._began = monotonic()
        self._first_token_seconds = 0.0
        self._prompt_tokens = self._output_tokens = 0
        self._unknown = False

    def add_prompt(self, computed_tokens: int | None) -> None:
        """Add the prompt tokens that a stream computed; None: it began and did not report them."""
        if computed_tokens is None:
            self._unknown = True
        else:
            self._prompt_tokens += computed_tokens

    def add_output(self, tokens: int) -> None:
        """Add output tokens that no other placement produced."""
        self._output_tokens += tokens

    def see_token(self, now: float) -> None:
        """Record the time of a stream's first token; the earliest one counts."""
        if not self._first_token_seconds:
            self._first_token_seconds = now - self._began

    def to_proto(self) -> router_pb2.TicketUsage | None:
        """Return the use, without a ticket's name; None if it is not completely known."""
        if self._unknown:
            return None
        return router_pb2.TicketUsage(
            computed_prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            first_token_seconds=self._first_token_seconds,
        )
