"""The masks of a step's sequences that have grammars, computed while the step runs.

A step waits a moment for masks, and for those that are slow not at all, unless it has nothing else
to draw. A sequence whose mask is late sits out: it has no token of this step, and takes part again
once the mask is there. So it has the same tokens, later, and the others have theirs in time.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from baton.engine.paged.plan import ScheduledChunk
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.bad_words import forbidden
from baton.engine.sampling.draw import Draw, NotSampled
from baton.structured.masks import SLOW_SECONDS, MaskRequest, Masks, PendingMask

Words = NDArray[np.uint32]


class Late(Enum):
    """What stands for a mask that is not there yet."""

    LATE = auto()


@dataclass(slots=True)
class StepMasks:
    """Those of one step."""

    rows: list[LiveSequence] = field(default_factory=list)
    awaited: "set[Future[Words]]" = field(default_factory=set)
    """What the step waits for: the masks of the rows that are not known to be slow."""
    slow: "set[Future[Words]]" = field(default_factory=set)
    """Those of the others."""
    size: int = 0
    """How many rows the step has, with and without masks."""

    def done(self) -> bool:
        """Return whether the masks are there that the step waits for."""
        return all(each.done() for each in self.awaited)

    def wait(self) -> Mapping[int, Words | NotSampled]:
        """Return by sequence what may come next, or why nothing can."""
        return {sequence.id: _taken(sequence) for sequence in self.rows}

    def wait_for(self, seconds: float) -> Mapping[int, Words | NotSampled | Late]:
        """Return the same of those that are there within so long; of the others, that they are not.

        Where the step has nothing else to draw, it waits until something is there.
        """
        if len(self.slow) == self.size:
            wait(self.slow, return_when=FIRST_COMPLETED)
        else:
            wait(self.awaited, None if len(self.rows) == self.size else seconds)
        return {
            sequence.id: Late.LATE if _pending(sequence) else _taken(sequence)
            for sequence in self.rows
        }


def begin_masks(batch: Sequence[ScheduledChunk], masks: Masks | None) -> StepMasks:
    """Begin to compute the masks of chunks that sample, and have none yet."""
    rows = [
        chunk.sequence for chunk in batch if chunk.samples and chunk.sequence.grammar is not None
    ]
    if masks is None or not rows:
        return StepMasks()
    together = []
    made = StepMasks(rows, size=len(batch))
    for sequence in rows:
        assert sequence.grammar is not None
        if sequence.mask is not None:
            continue
        state = sequence.grammar
        if state.cost > SLOW_SECONDS or state.behind(sequence.tokens, sequence.prompt_tokens):
            sequence.mask = PendingMask(masks.begin_apart(mask_request(sequence)), 0)
            made.slow.add(sequence.mask.computed)
        elif state.suspect and len(rows) < len(batch):  # else nobody waits who has none
            sequence.mask = PendingMask(masks.begin_apart(mask_request(sequence)), 0)
            made.awaited.add(sequence.mask.computed)
        else:
            together.append(sequence)
    if together:
        computed = masks.begin([mask_request(sequence) for sequence in together])
        made.awaited.add(computed)
        for row, sequence in enumerate(together):
            sequence.mask = PendingMask(computed, row)
    return made


def leave_out(late: Iterable[LiveSequence], running: int) -> list[LiveSequence]:
    """Leave sequences out of the next step whose masks are still not there.

    Args:
        late: those that sat out, of any state.
        running: how many sequences there are to compute: if no others are left, it waits until one
            of the masks is there.

    Returns:
        Those that are left out.
    """
    pending = [sequence for sequence in late if _pending(sequence)]
    if 0 < running == sum(sequence.running for sequence in pending):
        wait([_mask(sequence).computed for sequence in pending], return_when=FIRST_COMPLETED)
    for sequence in late:
        sequence.sits_out = _pending(sequence)
    return [sequence for sequence in late if sequence.sits_out]


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


def _mask(sequence: LiveSequence) -> PendingMask:
    assert sequence.mask is not None
    return sequence.mask


def _pending(sequence: LiveSequence) -> bool:
    return sequence.mask is not None and not sequence.mask.done()


def _taken(sequence: LiveSequence) -> Words | NotSampled:
    """Wait for a sequence's mask and take it."""
    mask = _mask(sequence).wait()
    sequence.mask = None
    return not_sampled(sequence) or mask
