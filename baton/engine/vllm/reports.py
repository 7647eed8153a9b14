"""What happened in a step of vLLM, as the engine contract's events."""

from vllm.v1.engine import EngineCoreOutput, FinishReason

from baton.engine.base import EngineInfo
from baton.engine.events import (
    Admitted,
    BlocksEvicted,
    BlocksReady,
    EndReason,
    Event,
    SampledTokens,
    SequenceEnded,
)
from baton.engine.paged.sequence import LiveSequence, SequenceState
from baton.engine.vllm.core import VllmCore
from baton.engine.vllm.held import HeldSequences
from baton.engine.vllm.held_sequence import HeldSequence
from baton.engine.vllm.prefix_cache import PrefixCache
from baton.engine.vllm.sampled import SampledReader


class StepReporter:
    """Writes events, and keeps Baton's side of each sequence right. Owned by the engine.

    Args:
        info: of the engine.
        core: whose requests they are.
        held: the sequences.
        cache: told which blocks are in it.
        reader: of what was sampled.
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
        self._core = core
        self._held = held
        self._cache = cache
        self._reader = reader
        self.unreported: dict[str, HeldSequence] = {}
        """Sequences with blocks that may be ready and were not reported."""

    def admitted(self, sequence: LiveSequence, events: list[Event]) -> None:
        """Report that a sequence has pages."""
        keys = tuple(sequence.keys)
        if sequence.partial_key is not None:
            keys += (sequence.partial_key,)
        cached = sequence.cached_blocks * self._block_tokens
        events.append(Admitted(sequence.id, cached, keys))

    def evicted(self, events: list[Event]) -> None:
        """Report blocks that left the prefix cache."""
        keys = self._cache.take_evicted()
        if keys:
            events.append(BlocksEvicted(keys))

    def ready(self, held: HeldSequence, events: list[Event]) -> None:
        """Report what became ready, unless vLLM has not looked at the sequence since its start."""
        sequence = held.sequence
        if sequence.state is SequenceState.WAITING or self._core.is_held(held.request):
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
        """Report what vLLM sampled, and the end if it is one."""
        sequence = held.sequence
        request = sequence.request
        if sequence.state is SequenceState.ENDED:
            return
        if output.finish_reason is FinishReason.ERROR:
            self._end(held, (EndReason.ERROR,) * len(request.choices), events, "vLLM gave it up")
            return
        reasons: list[EndReason | None] = []
        for sampled in self._reader.read(held, output):
            position = sequence.output_tokens
            for choice, one in zip(request.choices, sampled, strict=True):
                logprobs = () if one.logprob is None else (one.logprob,)
                events.append(SampledTokens(request.id, choice, position, (one.token,), logprobs))
            sequence.sampled_tokens += len(sampled)
            if not request.prefill_only:
                sequence.tokens.append(sampled[0].token)
            reasons = [sequence.end_reason(one.token, position) for one in sampled]
            if request.prefill_only or reasons[0] is not None:
                ended = tuple(reason or EndReason.PREFILLED for reason in reasons)
                self._end(held, ended, events)
                return

    def _end(
        self,
        held: HeldSequence,
        reasons: tuple[EndReason, ...],
        events: list[Event],
        error: str = "",
    ) -> None:
        sequence = held.sequence
        self._core.stop(held.request)
        self.ready(held, events)
        self._held.end(held)
        self.unreported.pop(held.name, None)
        request = sequence.request
        if request.prefill_only and sequence.partial_key is not None and not error:
            events.append(BlocksReady(sequence.id, sequence.reported, (sequence.partial_key,)))
            sequence.partial_reported = True
        events.append(
            SequenceEnded(
                id=sequence.id,
                reasons=reasons,
                computed_tokens=sequence.forward_tokens,
                cached_tokens=sequence.cached_tokens,
                output_tokens=sequence.sampled_tokens,
                queue_seconds=sequence.queue_seconds,
                kv_byte_seconds=sequence.page_seconds * self._block_bytes,
                error=error,
            )
        )
