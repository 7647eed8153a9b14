"""The masks of a step's sequences that have grammars, computed while the step runs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from baton.engine.paged.plan import ScheduledChunk
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.bad_words import forbidden
from baton.engine.sampling.draw import Draw, NotSampled
from baton.structured.masks import MaskRequest, Masks

Words = NDArray[np.uint32]


@dataclass(slots=True)
class StepMasks:
    """Those of one step."""

    rows: list[LiveSequence] = field(default_factory=list)
    computed: "Future[Words] | None" = None

    def wait(self) -> Mapping[int, Words | NotSampled]:
        """Return by sequence what may come next, or why nothing can."""
        if self.computed is None:
            return {}
        return {
            sequence.id: not_sampled(sequence) or mask
            for sequence, mask in zip(self.rows, self.computed.result(), strict=True)
        }


def begin_masks(batch: Sequence[ScheduledChunk], masks: Masks | None) -> StepMasks:
    """Begin to compute the masks of chunks that sample."""
    rows = [
        chunk.sequence for chunk in batch if chunk.samples and chunk.sequence.grammar is not None
    ]
    if masks is None or not rows:
        return StepMasks()
    return StepMasks(rows, masks.begin([mask_request(sequence) for sequence in rows]))


def mask_request(sequence: LiveSequence) -> MaskRequest:
    """Return what a sequence's next mask is computed of."""
    assert sequence.grammar is not None
    tokens, prompt_tokens = sequence.tokens, sequence.prompt_tokens
    draw = Draw(sequence.request.sampling, 0, tokens, prompt_tokens, sequence.forbidden_tokens)
    return MaskRequest(sequence.grammar, tokens, prompt_tokens, forbidden(draw))


def not_sampled(sequence: LiveSequence) -> NotSampled | None:
    """Return why a sequence's grammar lets nothing come next; None: something can."""
    error = sequence.grammar.error if sequence.grammar is not None else ""
    return NotSampled("grammar", error) if error else None
