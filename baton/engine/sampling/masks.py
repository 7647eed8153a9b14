"""Removing tokens from logits by masks, in plain torch: the reference of the compiled operator."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint32]
MaskLogits = Callable[[Tensor, Sequence[int], Words], None]


def mask_logits(logits: Tensor, rows: Sequence[int], words: Words) -> None:
    """Set the logits of tokens whose bit is not set to minus infinity, in place.

    Args:
        logits: float32 [rows, vocab], contiguous.
        rows: rows of the logits, one per mask.
        words: [len(rows), ceil(vocab / 32)], bit i % 32 of word i // 32 for token i.
    """
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=logits.shape[1], bitorder="little")
    if logits.device.type == "cpu":
        # A third of the time that torch takes.
        found = logits.numpy()
        for row, kept in zip(rows, bits, strict=True):
            np.copyto(found[row], -np.inf, where=kept == 0)
        return
    at = torch.tensor(rows, device=logits.device)
    left_out = torch.from_numpy(bits == 0).to(logits.device)
    logits[at] = logits[at].masked_fill(left_out, -torch.inf)
