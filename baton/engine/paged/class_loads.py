"""Sums over an engine's sequences by class."""

from collections.abc import Iterable

from baton.engine.base import ClassLoad
from baton.engine.paged.sequence import LiveSequence, SequenceState

_HOLDING = (SequenceState.ADMITTED, SequenceState.RUNNING)


def class_loads(sequences: Iterable[LiveSequence]) -> tuple[ClassLoad, ...]:
    """Return the loads of all classes, the highest first.

    Args:
        sequences: that wait or run. Prompts of admitted ones do not count as pending, as of
            `EngineStats`.
    """
    sums: dict[int, list[int]] = {}
    for each in sequences:
        one = sums.get(each.priority_class)
        if one is None:
            one = sums[each.priority_class] = [0, 0, 0, 0, 0]
        holds, waits = each.state in _HOLDING, each.state is SequenceState.WAITING
        one[0] += holds
        one[1] += waits
        if each.state is not SequenceState.ADMITTED:
            one[2] += max(0, each.prompt_tokens - each.num_computed_tokens)
        if waits:
            one[3] += each.expected_cached_tokens
        one[4] += len(each.pages)
    return tuple(ClassLoad(rank, *sums[rank]) for rank in sorted(sums))
