"""Chooses the tokens that a step computes. Pure: no clock.

Each step computes one token of every decoding sequence and fills the rest of its budget with chunks
of prompts: of a class, the one that has begun, to its end, then the others by their turns.

A step with sequences of the highest class that runs has work of lower classes only as far as its
duration allows (`step_room`), given `SequenceRequest.step_seconds` of the former: the oldest of the
highest decode first, and then there are tokens of prompts. The others keep their places and pages.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

from baton.engine.paged.group_pages import GroupPages
from baton.engine.paged.planning import step_room
from baton.engine.paged.planning.plan import ScheduledChunk, SchedulerLimits, StepPlan
from baton.engine.paged.planning.step_costs import StepCosts
from baton.engine.paged.sequence import LiveSequence
from baton.engine.work_order import INTERRUPTED_OFTEN

_RECENT = 256
"""Steps whose durations are kept."""

Allocate = Callable[[LiveSequence, int, StepPlan, float], bool]
"""Gives a sequence pages for its tokens before a position; returns whether it still runs."""


class StepPlanner:
    """Plans steps of running sequences. Owned by the scheduler, on the engine's thread.

    Args:
        pages: of the sequences.
        limits: of the scheduler.
        allocate: allocates, or preempts.
    """

    def __init__(self, pages: GroupPages, limits: SchedulerLimits, allocate: Allocate) -> None:
        self._pages = pages
        self._limits = limits
        self._allocate = allocate
        self.costs = StepCosts()
        """Observed by the engine."""
        self.durations: deque[float] = deque(maxlen=_RECENT)
        """Of recent steps with streams, without what lower classes had in them."""
        self.idle_room_offered = self.idle_room_used = 0
        """As of `EngineStats`."""

    def plan(
        self,
        running: Sequence[LiveSequence],
        plan: StepPlan,
        now: float,
    ) -> None:
        """Extend a plan by the tokens to compute next.

        Args:
            running: sequences, the oldest first.
            plan: extended. Sequences that are preempted meanwhile may have chunks in it.
            now: seconds on the engine's clock.
        """
        split = self._split(running)
        if split is None:
            self._prompts(self._decode(running, plan, now, math.inf), plan, now, math.inf)
            return
        first, lower, target = split
        chunked = self._decode(first, plan, now, math.inf)
        most = math.inf
        if first and first[0].priority_class >= INTERRUPTED_OFTEN:
            seconds = step_room.alone(self._seconds(plan), target)
            most = max(self._tokens_left(plan, seconds), self._limits.block_tokens)
        # Next to nothing but lower classes, a first token does not wait for the next prompt.
        self._prompts(chunked, plan, now, most, one_ends=bool(lower) and not plan.chunks)
        if plan.decoding:
            self.durations.append(self._seconds(plan))
        if lower:
            self._plan_lower(lower, plan, now, target)

    def _split(
        self, running: Sequence[LiveSequence]
    ) -> tuple[Sequence[LiveSequence], Sequence[LiveSequence], float] | None:
        """Return the sequences of the highest class, those of lower ones, and the former's target;
        None: they are planned as one.
        """
        if not running or not self.costs.known:
            return None
        top = min(each.priority_class for each in running)
        first = [each for each in running if each.priority_class == top]
        targets = [each.request.step_seconds for each in first if each.request.step_seconds]
        if not targets:
            return None
        lower = [each for each in running if each.priority_class > top]
        return first, sorted(lower, key=by_youth), min(targets)

    def _plan_lower(
        self, lower: Sequence[LiveSequence], plan: StepPlan, now: float, target: float
    ) -> None:
        """Plan the tokens of lower classes, after those of the highest one."""
        decoding = len(plan.decoding)
        prompts = plan.prompt_tokens > 0
        seconds = 0.0
        # A step that only computes a prompt may cost less than one that decodes, too.
        if decoding or not prompts:
            seconds = step_room.beside(self._seconds(plan), target, self._long, prompts=prompts)
        most = self.costs.sequences_in(seconds - self._seconds(plan))
        chunked = self._decode(lower, plan, now, most)
        self.idle_room_offered += int(min(most, self._limits.max_running))
        self.idle_room_used += len(plan.decoding) - decoding
        self._prompts(chunked, plan, now, self._tokens_left(plan, seconds))

    def _decode(
        self, sequences: Sequence[LiveSequence], plan: StepPlan, now: float, most: float
    ) -> list[LiveSequence]:
        """Plan the next tokens of sequences that decode; return the others.

        Args:
            sequences: running ones, those first that decode first.
            plan: extended.
            now: seconds on the engine's clock.
            most: sequences that decode.
        """
        chunked = []
        for sequence in sequences:
            if not sequence.running or sequence.sits_out:  # just preempted, or late
                continue
            end = len(sequence.tokens)
            if end - sequence.num_computed_tokens > 1:
                chunked.append(sequence)
                continue
            if most < 1:
                continue
            most -= 1
            self._pages.leave_behind(sequence, end - 1, now)
            if self._allocate(sequence, end, plan, now):
                # A token whose KV is in place is still computed: its logits are not stored.
                plan.chunks.append(ScheduledChunk(sequence, end - 1, end))
        if len(chunked) > 1:
            chunked.sort(key=lambda each: each.turn(now))
        return chunked

    def _prompts(
        self,
        sequences: Sequence[LiveSequence],
        plan: StepPlan,
        now: float,
        most: float,
        *,
        one_ends: bool = False,
    ) -> None:
        """Plan chunks of prompts.

        Args:
            sequences: by their turns.
            plan: extended.
            now: seconds on the engine's clock.
            most: tokens.
            one_ends: whether no chunk comes after one that ends its prompt.
        """
        if not sequences:
            return
        planned, decoding = plan.prompt_tokens, plan.decoding
        first = min((one.sequence.priority_class for one in decoding), default=None)
        for sequence in sequences:
            beside = first is not None and first <= sequence.priority_class
            budget = self._limits.prompt_tokens(len(decoding), beside=beside) - planned
            budget = int(min(budget, most))
            if budget <= 0:
                break
            if sequence.running:
                self._pages.leave_behind(sequence, sequence.num_computed_tokens, now)
            end = min(len(sequence.tokens), sequence.num_computed_tokens + budget)
            if sequence.running and self._allocate(sequence, end, plan, now):
                plan.chunks.append(ScheduledChunk(sequence, sequence.num_computed_tokens, end))
                planned += end - sequence.num_computed_tokens
                most -= end - sequence.num_computed_tokens
                if one_ends and end == len(sequence.tokens):
                    break

    @property
    def _long(self) -> float:
        if not self.durations:
            return math.inf
        return sorted(self.durations)[len(self.durations) * step_room.LONG_PERCENT // 100]

    def _seconds(self, plan: StepPlan) -> float:
        return self.costs.seconds(plan.prompt_tokens, len(plan.decoding))

    def _tokens_left(self, plan: StepPlan, seconds: float) -> float:
        """Return how many more prompt tokens fit into a step of that duration: whole blocks."""
        tokens = self.costs.tokens_in(seconds - self._seconds(plan))
        return tokens if tokens == math.inf else tokens - tokens % self._limits.block_tokens


def by_youth(sequence: LiveSequence) -> tuple[int, int]:
    """Return the key by which the youngest sequence of the lowest class is the greatest."""
    return sequence.priority_class, sequence.order
