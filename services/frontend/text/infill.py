"""Tokens that ask a model for the text between two texts (fill in the middle)."""

from collections.abc import Callable

_FAMILIES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder 2, Granite Code
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)
"""Tokens before the prefix, before the suffix, and before the output: all of these models were
trained with prompts in this order."""


def infill_tokens(token_id: Callable[[str], int | None]) -> tuple[int, int, int] | None:
    """Return the three tokens of a vocabulary; None: its model does not support infilling.

    Args:
        token_id: returns the id of a token by its text.
    """
    for family in _FAMILIES:
        before, behind, output = map(token_id, family)
        if before is not None and behind is not None and output is not None:
            return before, behind, output
    return None
