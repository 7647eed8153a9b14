"""The unit in which requests are admitted, placed and taken: sequences, and KV pages of a worker.

A choice that decodes is a sequence; a prefill is one for all choices. Routers count both before
they place a request, and workers report what they hold by the same functions, so that a request
that was placed has room where it goes.
"""

RESERVED_OUTPUT_TOKENS = 256
"""Of each choice, the output tokens to have memory for when it begins: others free theirs as they
end, and for what it writes beyond, a stream may have to wait."""


def output_reserve(
    max_tokens: int, output_tokens: int = 0, most: int = RESERVED_OUTPUT_TOKENS
) -> int:
    """Return the tokens that a choice is counted for beyond those it has.

    Args:
        max_tokens: the most output tokens that it may have.
        output_tokens: that it begins with.
        most: counted at most.
    """
    return max(1, min(max_tokens - output_tokens, most))


def choice_pages(known_tokens: int, reserve: int, choices: int, block_tokens: int) -> int:
    """Return the pages that the choices of one request need: they share full blocks alone.

    Args:
        known_tokens: of the prompt and the output so far.
        reserve: tokens of each choice beyond these.
        choices: how many.
        block_tokens: tokens of a page.
    """
    shared, tail = divmod(known_tokens, block_tokens)
    return shared + choices * -(-(tail + reserve) // block_tokens)
