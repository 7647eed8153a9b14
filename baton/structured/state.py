"""Where an output is in its grammar: a function of the grammar and the output alone."""

from collections.abc import Sequence

from llguidance import LLMatcher

from baton.structured.compile import CompiledGrammar

_REPLAYED = 64
"""Tokens that are taken at once: meanwhile no other thread of the process runs Python."""
_DECAY = 0.97
"""How soon a slow mask is forgotten: 10 ms in a hundred masks."""


class GrammarState:
    """The state of one output, which it is shown token by token, or all at once.

    One thread uses it at a time. It lives as long as its sequence; another one that is shown the
    same output allows the same tokens, in any process.
    """

    def __init__(self, compiled: CompiledGrammar) -> None:
        self.compiled = compiled
        self._matcher = compiled.begin()
        self._consumed = 0
        self.error = ""
        """Why it cannot go on; empty: it can."""
        self.suspect = False
        """Its last mask was one of several, which took long together."""
        self.cost = 0.0
        """Seconds of processor time: the longest of the masks that were measured lately."""

    def behind(self, tokens: Sequence[int], begin: int) -> bool:
        """Return whether it was shown so little of an output, as of `advance`, that the rest takes
        long."""
        return len(tokens) - begin - self._consumed > _REPLAYED

    def took(self, seconds: float) -> None:
        """Record what a mask took, measured by itself."""
        self.suspect = False
        self.cost = max(seconds, self.cost * _DECAY)

    def advance(self, tokens: Sequence[int], begin: int = 0) -> LLMatcher | None:
        """Take what is new of an output.

        Args:
            tokens: of which the output is a part; what it was shown before has not changed.
            begin: where in them the output begins.

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
        """Return whether a token may come after an output, which is as of `advance`.

        Args:
            tokens, begin: as of `advance`.
            token: that may come.
            ends: tokens that end an output.
        """
        matcher = self.advance(tokens, begin)
        if matcher is None:
            return False
        if token in ends:  # which a complete text without a continuation does not validate
            return matcher.is_accepting()
        return matcher.validate_tokens([token]) == 1

    def fail(self, error: str) -> None:
        """Record that no more can come."""
        self.error = " ".join(error.replace("<non-verbose/>", "").split())[:400]


def state(compiled: CompiledGrammar, output: Sequence[int]) -> GrammarState:
    """Return the state after an output."""
    made = GrammarState(compiled)
    made.advance(output)
    return made
