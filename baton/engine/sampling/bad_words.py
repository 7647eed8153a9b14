"""Runs of tokens that an output may not have. Imports no torch."""

from collections.abc import Sequence

from baton.engine.sampling.draw import Draw


def forbidden(draw: Draw) -> frozenset[int]:
    """Return the tokens that may not be drawn: those it forbids, and the last ones of bad words of
    which the output has all others at its end."""
    runs = draw.sampling.bad_word_ids
    if not runs:
        return draw.forbidden
    completing = {run[-1] for run in runs if _ends_with(draw, run[:-1])}
    return draw.forbidden | completing if completing else draw.forbidden


def _ends_with(draw: Draw, tokens: Sequence[int]) -> bool:
    size = len(tokens)
    if size > len(draw.tokens) - draw.prompt_tokens:  # what the prompt ends with does not count
        return False
    return not size or tuple(draw.tokens[-size:]) == tuple(tokens)
