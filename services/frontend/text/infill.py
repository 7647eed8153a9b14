"""Tokens by which models are asked for what stands between two texts."""

from collections.abc import Callable

_FAMILIES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen 2.5 Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder 2, Granite Code
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)
"""What stands before the text before, before the text behind, and before the output: all of these
were trained with prompts in this order."""


def infill_tokens(token_id: Callable[[str], int | None]) -> tuple[int, int, int] | None:
    """Return the three tokens of a vocabulary; None: its model does not know how.

    Args:
        token_id: returns the id of a token by its text.
    """
    for family in _FAMILIES:
        before, behind, output = map(token_id, family)
        if before is not None and behind is not None and output is not None:
            return before, behind, output
    return None
