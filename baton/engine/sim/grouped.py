"""The simulator's runner for layouts with groups: each group is a layer of a model of its kind.

    hidden_0(p)   = H(position p, token p)
    kv_g(p)       = H(hidden_g(p))                     full, window and chunk: written for token p
    state_g(p)    = H(state_g(p - 1), hidden_g(p))     state: replaces the one in the block's page
    hidden_g+1(p) = H(hidden_g(p), what token p reads of group g)

The next token is a hash of the last hidden value. A token reads of each group what attention of
that kind would: a window or a chunk ends with the token itself. So a byte that is wrong within them
changes the following tokens, and one behind them changes nothing.
"""

import struct
from collections.abc import Iterator, Sequence

import xxhash

from baton.engine.paged.planning.plan import ScheduledChunk
from baton.engine.paged.runner import GroupMemory
from baton.engine.paged.sequence import LiveSequence
from baton.engine.sim.pages import TOKEN_BYTES, SimPages
from baton.engine.sim.runner import SimCosts, SimRunner
from baton.kv.layout import GroupKind, KvGroup
from baton.structured.masks import Masks

_TOKEN = struct.Struct("<QqI")
_DIGEST_BYTES = 16


class _FullBlocks:
    """A hash over a sequence's full blocks of one group, as far as they have been read."""

    def __init__(self) -> None:
        self.digest = xxhash.xxh3_128()
        self.blocks = 0


class GroupedSimRunner(SimRunner):
    """Pages per group, of 16 bytes per token or of one state."""

    def __init__(
        self,
        groups: Sequence[KvGroup],
        pages: int,
        block_tokens: int,
        vocab_tokens: int,
        eos_token_ids: Sequence[int],
        weights: int,
        costs: SimCosts,
        kill_token: int = -1,
        masks: Masks | None = None,
    ) -> None:
        """Allocate memory for the pages, lazily.

        Args:
            groups: of the layout; the other arguments are those of `SimRunner`.
        """
        # It uses no pages of the one group.
        super().__init__(
            1, block_tokens, vocab_tokens, eos_token_ids, weights, costs, kill_token, masks
        )
        self._groups = groups
        self._memories = [SimPages(pages, group.block_bytes) for group in groups]
        self._full: dict[tuple[int, int], _FullBlocks] = {}

    def memory_of(self, group: int) -> GroupMemory:
        return self._memories[group]

    def forget(self, sequence_id: int) -> None:
        for group in range(len(self._groups)):
            self._full.pop((sequence_id, group), None)

    def close(self) -> None:
        super().close()
        for memory in self._memories:
            memory.close()
        self._full.clear()

    def _write_kv(self, chunk: ScheduledChunk) -> None:
        sequence = chunk.sequence
        for position in range(max(chunk.start, sequence.num_computed_tokens), chunk.end):
            self._forward(sequence, position, write=True)

    def _read_kv(self, sequence: LiveSequence) -> bytes:
        return self._forward(sequence, len(sequence.tokens) - 1, write=False)

    def _forward(self, sequence: LiveSequence, position: int, *, write: bool) -> bytes:
        """Return the last hidden value of a position, whose KV is written or in place already."""
        token = self._token(sequence, position) if write else sequence.tokens[position]
        hidden = xxhash.xxh3_128_digest(_TOKEN.pack(self._weights, position, token))
        block, within = divmod(position, self._block_tokens)
        tables = sequence.tables
        for group, (layer, memory) in enumerate(zip(self._groups, self._memories, strict=True)):
            page = tables[group][block]
            if layer.kind is GroupKind.STATE:
                if write:
                    before = self._state_before(tables[group], memory, position)
                    state = xxhash.xxh3_128_digest(before + hidden)
                    size = memory.page_bytes
                    memory.slot(page, 0, size)[:] = state * (size // _DIGEST_BYTES)
                read = xxhash.xxh3_128(memory.slot(page, 0, memory.page_bytes))
            else:
                if write:
                    at = within * TOKEN_BYTES
                    kv = xxhash.xxh3_128_digest(hidden)
                    memory.slot(page, at, at + TOKEN_BYTES)[:] = kv
                read = self._read_tokens(sequence, group, position)
            read.update(hidden)
            hidden = read.digest()
        return hidden

    def _state_before(self, table: Sequence[int], memory: SimPages, position: int) -> bytes:
        if position == 0:
            return b""
        return bytes(memory.slot(table[(position - 1) // self._block_tokens], 0, memory.page_bytes))

    def _read_tokens(self, sequence: LiveSequence, group: int, position: int) -> "xxhash.xxh3_128":
        """Return a hash of the KV of the tokens that a position reads, itself included."""
        layer, table, memory = self._groups[group], sequence.tables[group], self._memories[group]
        if layer.kind is GroupKind.FULL:
            full = self._full.setdefault((sequence.id, group), _FullBlocks())
            while (full.blocks + 1) * self._block_tokens <= position:
                page = table[full.blocks]
                full.digest.update(memory.slot(page, 0, memory.page_bytes))
                full.blocks += 1
            digest, first = full.digest.copy(), full.blocks * self._block_tokens
        else:
            digest = xxhash.xxh3_128()
            first = position - position % layer.span_tokens
            if layer.kind is GroupKind.WINDOW:
                first = max(0, position - layer.span_tokens + 1)
        for page, start, end in self._pieces(table, first, position + 1):
            digest.update(memory.slot(page, start * TOKEN_BYTES, end * TOKEN_BYTES))
        return digest

    def _pieces(self, table: Sequence[int], first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield page, first token within it and the one after the last, for a range of tokens."""
        size = self._block_tokens
        while first < end:
            block, start = divmod(first, size)
            until = min(end, (block + 1) * size)
            yield table[block], start, until - block * size
            first = until
