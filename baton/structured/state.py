"""Position of an output in its grammar: a function of the grammar and the output alone."""

from collections.abc import Sequence

from llguidance import LLMatcher

from baton.structured.compile import CompiledGrammar

_REPLAYED = 64
"""Tokens that are consumed together: meanwhile no other thread of the process runs Python."""
_DECAY = 0.97
"""Decay of the cost of a slow mask: 10 ms are forgotten in a hundred masks."""


class GrammarState:
    """Grammar state of one output, advanced token by token or with several tokens together.

    Used by one thread at a time. It lives as long as its sequence; another state that is advanced
    over the same output allows the same tokens, in any process.
    """

    def __init__(self, compiled: CompiledGrammar) -> None:
        self.compiled = compiled
        self._matcher = compiled.begin()
        self._consumed = 0
        self.error = ""
        """Reason for which it cannot continue; empty: it can."""
        self.suspect = False
        """Whether its last mask was one of several that together took long."""
        self.cost = 0.0
        """CPU seconds of the slowest recently measured mask, which decays."""

    def behind(self, tokens: Sequence[int], begin: int) -> bool:
        """Return whether so little of an output is consumed, as of `advance`, that the rest takes
        long.
        """
        return len(tokens) - begin - self._consumed > _REPLAYED

    def took(self, seconds: float) -> None:
        """Record the time of a mask that was measured separately."""
        self.suspect = False
        self.cost = max(seconds, self.cost * _DECAY)

    def advance(self, tokens: Sequence[int], begin: int = 0) -> LLMatcher | None:
        """Consume the new tokens of an output.

        Args:
            tokens: tokens that contain the output; those already consumed have not changed.
            begin: start of the output in the tokens.

        Returns:
            The matcher, which computes the next mask; None after an error.
        """
        if self.error:
            return None
        for at in range(begin + self._consumed, len(tokens), _REPLAYED):
            new = list(tokens[at : at + _REPLAYED])
            if not self._matcher.consume_tokens(new):
                error = self._matcher.get_error()
                unfit = "satisfy the grammar" in error
                what = (
                    "the output so far does not match the grammar"
                    if unfit
                    else ("it is too complex")
                )
                self.fail(f"{what}: {error}")
                return None
            self._consumed += len(new)
        return self._matcher

    def allows(self, tokens: Sequence[int], begin: int, token: int, ends: frozenset[int]) -> bool:
        """Return whether a token may follow an output, which is as of `advance`.

        Args:
            tokens, begin: as of `advance`.
            token: the next token.
            ends: tokens that end an output.
        """
        matcher = self.advance(tokens, begin)
        if matcher is None:
            return False
        if token in ends:  # which a complete text without a continuation does not validate
            return matcher.is_accepting()
        return matcher.validate_tokens([token]) == 1

    def fail(self, error: str) -> None:
        """Record that the output cannot continue."""
        self.error = " ".join(error.replace("<non-verbose/>", "").split())[:400]


def state(compiled: CompiledGrammar, output: Sequence[int]) -> GrammarState:
    """Return the state after an output."""
    made = GrammarState(compiled)
    made.advance(output)
    return made
