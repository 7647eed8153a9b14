"""Chooses the tokens that a step computes. Pure: no clock.

Each step computes one token of every decoding sequence and fills the rest of its budget with chunks
of prompts: of a class, the one that has begun, to its end, then the others by their turns.

A step with sequences of the highest class that runs has work of lower classes only as far as it
takes no longer than `SequenceRequest.step_seconds` of the former: the oldest of the highest decode
first, and then there are tokens of prompts. The others keep their places and pages.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain

from baton.engine.paged.group_pages import GroupPages
from baton.engine.paged.planning.plan import ScheduledChunk, SchedulerLimits, StepPlan
from baton.engine.paged.planning.step_costs import StepCosts
from baton.engine.paged.sequence import LiveSequence
from baton.engine.work_order import INTERRUPTED_OFTEN

_SHORT = 1e-9
"""Seconds of a step into which nothing more fits."""

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
        self.idle_room_offered = self.idle_room_used = 0
        """As of `EngineStats`."""

    def plan(
        self,
        running: Sequence[LiveSequence],
        came: Sequence[LiveSequence],
        plan: StepPlan,
        now: float,
    ) -> None:
        """Extend a plan by the tokens to compute next.

        Args:
            running: sequences, the oldest first.
            came: sequences that are to start after this step.
            plan: extended. Sequences that are preempted meanwhile may have chunks in it.
            now: seconds on the engine's clock.
        """
        first, lower, seconds = self._split(running, came)
        often = bool(first) and _is_interrupted_often(first[0])
        self._plan(first, plan, now, seconds if often else 0.0)
        if lower:
            # No prompt of the highest class waits for others in its steps.
            left = _SHORT if plan.prompt_tokens else seconds
            self._plan(lower, plan, now, left, decodes_too=True)

    def _split(
        self, running: Sequence[LiveSequence], came: Sequence[LiveSequence]
    ) -> tuple[Sequence[LiveSequence], Sequence[LiveSequence], float]:
        """Return the sequences to plan first, and those for which there is only what is left of so
        many seconds; 0: there is no limit.
        """
        ranks = {each.priority_class for each in chain(running, came)}
        if not ranks or not self.costs.known:
            return running, (), 0.0
        top = min(ranks)
        of_top = [each for each in chain(running, came) if each.priority_class == top]
        limits = [each.request.step_seconds for each in of_top if each.request.step_seconds]
        if not limits:
            return running, (), 0.0
        first = [each for each in running if each.priority_class == top]
        lower = [each for each in running if each.priority_class > top]
        seconds = min(limits)
        if lower and any(each.priority_class == top for each in came):
            seconds = _SHORT if first else seconds / 2  # it starts after this step
        return first, sorted(lower, key=by_youth), seconds

    def _plan(
        self,
        sequences: Sequence[LiveSequence],
        plan: StepPlan,
        now: float,
        seconds: float,
        *,
        decodes_too: bool = False,
    ) -> None:
        """Plan the next tokens of sequences, after what is planned already.

        Args:
            sequences: running ones, those first that decode first.
            plan: extended.
            now: seconds on the engine's clock.
            seconds: duration of a step that their prompts keep; 0: any.
            decodes_too: whether sequences that decode keep it, too.
        """
        chunked = []
        left = room = self._sequences_left(plan, seconds) if decodes_too else math.inf
        before = len(plan.decoding) if decodes_too else 0
        for sequence in sequences:
            if not sequence.running or sequence.sits_out:  # just preempted, or late
                continue
            end = len(sequence.tokens)
            if end - sequence.num_computed_tokens > 1:
                chunked.append(sequence)
                continue
            if left < 1:
                continue
            left -= 1
            self._pages.leave_behind(sequence, end - 1, now)
            if self._allocate(sequence, end, plan, now):
                # A token whose KV is in place is still computed: its logits are not stored.
                plan.chunks.append(ScheduledChunk(sequence, end - 1, end))
        if len(chunked) > 1:
            chunked.sort(key=lambda each: each.turn(now))
        if decodes_too:
            most = min(room, self._limits.max_running)
            self.idle_room_offered += int(most)
            self.idle_room_used += len(plan.decoding) - before
        if not chunked:
            return
        planned, decoding = plan.prompt_tokens, plan.decoding
        first = min((one.sequence.priority_class for one in decoding), default=None)
        most = self._tokens_left(plan, seconds, at_least=not decodes_too) if seconds else math.inf
        for sequence in chunked:
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

    def _sequences_left(self, plan: StepPlan, seconds: float) -> float:
        """Return how many more sequences may decode in a step of that duration."""
        spent = self.costs.seconds(plan.prompt_tokens, len(plan.decoding))
        return self.costs.sequences_in(seconds - spent)

    def _tokens_left(self, plan: StepPlan, seconds: float, *, at_least: bool) -> float:
        """Return how many more prompt tokens fit into a step of that duration: whole blocks.

        Args:
            plan: of the step.
            seconds: its duration.
            at_least: return one block if there is less.
        """
        spent = self.costs.seconds(plan.prompt_tokens, len(plan.decoding))
        tokens, block = self.costs.tokens_in(seconds - spent), self._limits.block_tokens
        if tokens == math.inf:
            return tokens
        return max(tokens - tokens % block, block if at_least else 0)


def by_youth(sequence: LiveSequence) -> tuple[int, int]:
    """Return the key by which the youngest sequence of the lowest class is the greatest."""
    return sequence.priority_class, sequence.order


def _is_interrupted_often(sequence: LiveSequence) -> bool:
    return sequence.priority_class >= INTERRUPTED_OFTEN
