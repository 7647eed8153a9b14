"""The masks of a step's sequences that have grammars, computed while the step runs.

A step waits briefly for masks, and not for slow ones unless it has nothing else to sample. A
sequence whose mask is late sits out: it gets no token in this step, and takes part again once the
mask is ready. It gets the same tokens later, and the others get theirs in time.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from baton.engine.paged.planning.plan import ScheduledChunk
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sampling.bad_words import forbidden
from baton.engine.sampling.draw import Draw, NotSampled
from baton.structured.masks import SLOW_SECONDS, MaskRequest, Masks, PendingMask

Words = NDArray[np.uint32]


class Late(Enum):
    """Placeholder for a mask that is not ready yet."""

    LATE = auto()


@dataclass(slots=True)
class StepMasks:
    """Masks of one step."""

    rows: list[LiveSequence] = field(default_factory=list)
    awaited: "set[Future[Words]]" = field(default_factory=set)
    """Masks for which the step waits: those of rows that are not known to be slow."""
    slow: "set[Future[Words]]" = field(default_factory=set)
    """Masks of the slow rows."""
    size: int = 0
    """Number of rows of the step, with and without masks."""

    def done(self) -> bool:
        """Return whether the masks for which the step waits are ready."""
        return all(each.done() for each in self.awaited)

    def wait(self) -> Mapping[int, Words | NotSampled]:
        """Return by sequence the tokens that are allowed next, or why there are none."""
        return {sequence.id: _taken(sequence) for sequence in self.rows}

    def wait_for(self, seconds: float) -> Mapping[int, Words | NotSampled | Late]:
        """Return the same within a time limit; masks that are not ready then are `Late`.

        If the step has nothing else to sample, it waits until one is ready.
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
    """Begin to compute the masks of chunks that sample and have no mask yet."""
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
        elif state.suspect and len(rows) < len(batch):  # otherwise no sequence without a mask waits
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
    """Leave sequences whose masks are still not ready out of the next step.

    Args:
        late: those that sat out, of any state.
        running: number of sequences to compute: if no others are left, it waits until one mask is
            ready.

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
    """Return the input from which a sequence's next mask is computed."""
    assert sequence.grammar is not None
    tokens, prompt_tokens = sequence.tokens, sequence.prompt_tokens
    draw = Draw(sequence.request.sampling, 0, tokens, prompt_tokens, sequence.forbidden_tokens)
    return MaskRequest(sequence.grammar, tokens, prompt_tokens, forbidden(draw))


def not_sampled(sequence: LiveSequence) -> NotSampled | None:
    """Return why a sequence's grammar allows no next token; None: it allows one."""
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
