"""Number of occurrences of each token in a sequence, for penalties. Imports no torch."""

from array import array
from collections.abc import Sequence
from itertools import islice

from baton.sampling import SamplingParams


class TokenCounts:
    """Distinct tokens of a sequence and their numbers of occurrences in its output.

    A pure function of the tokens that it has counted. The sequence's owner owns it, passes every
    token to it once, and releases it with the sequence.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self.ids = array("q")
        """Tokens of prompt and output, by first appearance. Do not keep a reference: it grows."""
        self.times = array("f")
        """Occurrences in the output, one per entry of `ids`."""
        self._prompt_tokens = prompt_tokens
        self._slots: dict[int, int] = {}
        self._counted = 0

    def catch_up(self, tokens: Sequence[int]) -> None:
        """Count the new tokens of a sequence, given its prompt and output so far."""
        for position, token in enumerate(islice(tokens, self._counted, None), self._counted):
            slot = self._slots.setdefault(token, len(self.ids))
            if slot == len(self.ids):
                self.ids.append(token)
                self.times.append(0)
            if position >= self._prompt_tokens:
                self.times[slot] += 1
        self._counted = len(tokens)


def has_penalties(sampling: SamplingParams) -> bool:
    """Return whether sampling needs counts."""
    return (
        sampling.repetition_penalty != 1
        or sampling.frequency_penalty != 0
        or sampling.presence_penalty != 0
    )
