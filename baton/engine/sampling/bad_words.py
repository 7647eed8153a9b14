"""Token sequences that an output must not contain. Imports no torch."""

from collections.abc import Sequence

from baton.engine.sampling.draw import Draw


def forbidden(draw: Draw) -> frozenset[int]:
    """Return the tokens that must not be sampled: the draw's own, and the last token of each bad
    word whose other tokens are at the end of the output.
    """
    runs = draw.sampling.bad_word_ids
    if not runs:
        return draw.forbidden
    completing = {run[-1] for run in runs if _ends_with(draw, run[:-1])}
    return draw.forbidden | completing if completing else draw.forbidden


def _ends_with(draw: Draw, tokens: Sequence[int]) -> bool:
    size = len(tokens)
    if size > len(draw.tokens) - draw.prompt_tokens:  # the end of the prompt does not count
        return False
    return not size or tuple(draw.tokens[-size:]) == tuple(tokens)
