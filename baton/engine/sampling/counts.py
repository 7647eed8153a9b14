"""How often a sequence has each token, for penalties. Imports no torch."""

from array import array
from collections.abc import Sequence
from itertools import islice

from baton.sampling import SamplingParams


class TokenCounts:
    """The distinct tokens of a sequence and how often its output has each.

    A pure function of the tokens that it was shown. What owns the sequence owns it, shows it every
    token once, and lets it go with the sequence.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self.ids = array("q")
        """Prompt and output, in order of their first appearance. Read, not kept: it grows."""
        self.times = array("f")
        """In the output, as many as `ids`."""
        self._prompt_tokens = prompt_tokens
        self._slots: dict[int, int] = {}
        self._counted = 0

    def catch_up(self, tokens: Sequence[int]) -> None:
        """Count what is new in a sequence's tokens, which are prompt and output so far."""
        for position, token in enumerate(islice(tokens, self._counted, None), self._counted):
            slot = self._slots.setdefault(token, len(self.ids))
            if slot == len(self.ids):
                self.ids.append(token)
                self.times.append(0)
            if position >= self._prompt_tokens:
                self.times[slot] += 1
        self._counted = len(tokens)


def has_penalties(sampling: SamplingParams) -> bool:
    """Return whether draws need counts."""
    return (
        sampling.repetition_penalty != 1
        or sampling.frequency_penalty != 0
        or sampling.presence_penalty != 0
    )
