"""Report a step of vLLM as the engine contract's events."""

from collections.abc import Sequence

from vllm.v1.engine import EngineCoreOutput, FinishReason

from baton.engine.base import EngineInfo
from baton.engine.events import BlocksEvicted, BlocksReady, EndReason, Event, PromptScored
from baton.engine.paged.reports import report_ended, report_sampled
from baton.engine.paged.sequence import LiveSequence, SequenceState
from baton.engine.sampling.draw import Sampled
from baton.engine.vllm.core import VllmCore
from baton.engine.vllm.prefix_cache import PrefixCache
from baton.engine.vllm.sequences.held import HeldSequences
from baton.engine.vllm.sequences.held_sequence import HeldSequence
from baton.engine.vllm.sequences.sampled import SampledReader, scored_prompt


class StepReporter:
    """Creates events, and updates Baton's view of each sequence. Owned by the engine.

    Args:
        info: of the engine.
        core: the core with the requests.
        held: the sequences.
        cache: receives the blocks that are in the prefix cache.
        reader: reads the sampled tokens.
    """

    def __init__(
        self,
        info: EngineInfo,
        core: VllmCore,
        held: HeldSequences,
        cache: PrefixCache,
        reader: SampledReader,
    ) -> None:
        self._block_tokens = info.layout.block_tokens
        self._block_bytes = info.block_bytes
        self._chunk_tokens = info.chunk_tokens
        self._core = core
        self._held = held
        self._cache = cache
        self._reader = reader
        self.unreported: dict[str, HeldSequence] = {}
        """Sequences with blocks that may be ready and were not reported."""

    def evicted(self, events: list[Event]) -> None:
        """Report blocks that left the prefix cache."""
        for group, keys in self._cache.take_evicted().items():
            events.append(BlocksEvicted(tuple(keys), group))

    def ready(self, held: HeldSequence, events: list[Event]) -> None:
        """Report blocks that became ready, if vLLM has scheduled the sequence since its start."""
        sequence = held.sequence
        without_pages = sequence.state in (SequenceState.WAITING, SequenceState.PAUSED)
        if without_pages or self._core.is_held(held.request):
            return
        computed, in_flight = self._core.computed_tokens(held.request)
        sequence.num_computed_tokens = max(sequence.num_computed_tokens, computed)
        full = min(computed // self._block_tokens, len(sequence.keys))
        if full > sequence.registered:
            self._held.blocks_ready(held, full)
        if full > held.told:
            sequence.reported = max(full, sequence.reported)
            self._cache.registered(sequence.keys, held.told, full)
            keys = tuple(sequence.keys[held.told : full])
            events.append(BlocksReady(sequence.id, held.told, keys))
            held.told = full
        if not in_flight or sequence.state is SequenceState.ENDED:
            self.unreported.pop(held.name, None)

    def output(self, held: HeldSequence, output: EngineCoreOutput, events: list[Event]) -> None:
        """Report the tokens that vLLM sampled, and the end if they are the last."""
        sequence = held.sequence
        if sequence.state is SequenceState.ENDED:
            return
        if output.finish_reason is FinishReason.ERROR:
            self._end(
                held,
                (EndReason.ERROR,) * len(sequence.request.choices),
                events,
                "vLLM aborted the request",
            )
            return
        if sequence.scores_prompt and not self._scored(held, output, events):
            given_up = (EndReason.ERROR,) * len(sequence.request.choices)
            self._end(held, given_up, events, "vLLM lost the log probabilities of the prompt")
            return
        for sampled in self._reader.read(held, output):
            if unfit := self._unfit(sequence, sampled):
                given_up = (EndReason.ERROR,) * len(sequence.request.choices)
                self._end(held, given_up, events, unfit, "grammar")
                return
            reasons = report_sampled(sequence, sampled, events)
            if reasons is not None:
                self._end(held, reasons, events)
                return

    def _scored(self, held: HeldSequence, output: EngineCoreOutput, events: list[Event]) -> bool:
        """Report the log probabilities of a prompt, which vLLM returns with the first token.

        It returns them once: they are lost with that output if the sequence is preempted before it
        is read, which may happen with async scheduling. Return whether they are present.
        """
        sequence = held.sequence
        entries = scored_prompt(held, output)
        if not entries:
            return False
        # At most as many in one event as an engine reports that does so for each chunk.
        for at in range(0, len(entries), self._chunk_tokens):
            some = tuple(entries[at : at + self._chunk_tokens])
            events.append(PromptScored(sequence.id, sequence.scored_tokens, some))
            sequence.scored_tokens += len(some)
        return True

    def _unfit(self, sequence: LiveSequence, sampled: Sequence[Sampled]) -> str:
        """Return why a sampled token violates the sequence's grammar; empty: it does not.

        The processor, which may be in another process, samples an end where no token is allowed.
        """
        grammar = sequence.grammar
        if grammar is None:
            return ""
        tokens, begin = sequence.tokens, sequence.prompt_tokens
        ends = sequence.grammar_ends
        if all(grammar.allows(tokens, begin, one.token, ends) for one in sampled):
            return ""
        return grammar.error or "the grammar permits no next token, or is too complex"

    def _end(
        self,
        held: HeldSequence,
        reasons: tuple[EndReason, ...],
        events: list[Event],
        error: str = "",
        error_field: str = "",
    ) -> None:
        self._core.stop(held.request)
        self.ready(held, events)
        self._held.end(held)
        self.unreported.pop(held.name, None)
        report_ended(held.sequence, reasons, self._block_bytes, events, error, error_field)
