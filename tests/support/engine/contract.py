"""Shared parts of the engine contract's tests: kinds of engines, and requests to them.

All numbers of tokens derive from the engine's own block size, so that one test fits all engines.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import (
    Admitted,
    BlocksEvicted,
    BlocksReady,
    Event,
    SampledTokens,
    SequenceEnded,
)
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.support.clock import LIMIT_SECONDS, Stopwatch

MAX_ID = 1000
"""Ids of sequences in these tests are below this."""
MAX_SECONDS = LIMIT_SECONDS
"""Longer than an engine of these tests takes for all of its work, while the machine stalls too."""


@dataclass(frozen=True)
class EngineKind:
    """An engine that must fulfil the contract, in two sizes."""

    name: str
    block_tokens: int
    token_bytes: int
    """KV bytes per token, over all layers and ranks."""
    tight_pages: int
    """Pages of the small engine: the fewest that `engine.kv_bytes` allows."""
    settings: dict[str, Any] = field(hash=False)
    null_pages: int = 0
    """Pages that the engine allocates and no sequence uses."""
    only_tight: bool = False
    """Whether all tests run on the small engine because it is slow to create."""
    window: int = 0
    """Last tokens that half of the layers see; 0: all."""

    @property
    def is_vllm(self) -> bool:
        return self.name.startswith("vllm")

    @property
    def has_groups(self) -> bool:
        """Whether only cuts can be continued."""
        return self.window > 0 or "sim_groups" in self.settings

    def make(self, checkpoint: Path, *, tight: bool) -> Engine:
        """Create an engine: with memory for many blocks, or with limits that tests reach."""
        pages = self.tight_pages if tight else max(512, 2 * self.tight_pages)
        size = self.block_tokens * self.token_bytes
        fields: dict[str, Any] = {
            "model": checkpoint,
            "threads": 1,
            "sim_time_scale": 0,
            "kv_bytes": (pages + self.null_pages) * size,
        }
        if tight:
            # Two such sequences do not fit at once.
            fields["context_tokens"] = pages * 5 // 8 * self.block_tokens
            fields |= {"max_running": 4, "max_waiting": 8, "chunk_tokens": 2 * self.block_tokens}
        engine = create_engine(EngineSettings.model_validate(fields | self.settings))
        assert engine.info.layout.block_tokens == self.block_tokens
        assert engine.info.block_bytes == size
        assert engine.stats().total_pages == pages
        return engine


_SIM = {"kind": "sim"}
_TORCH = {"kind": "torch", "native": "off", "dtype": "float64"}
_VLLM = {"kind": "vllm", "dtype": "float32"}

KINDS = [
    EngineKind("sim-16", 16, 16, 256, _SIM),
    EngineKind("sim-32", 32, 16, 128, _SIM | {"block_tokens": 32}),
    EngineKind("sim-128", 128, 16, 32, _SIM | {"block_tokens": 128}),
    EngineKind("sim-groups", 16, 48, 256, _SIM | {"sim_groups": "full,window:40,state"}),
    EngineKind("torch-16", 16, 1024, 32, _TORCH),
    EngineKind("torch-window", 16, 1024, 32, _TORCH, window=40),
    EngineKind("vllm-32", 32, 1024, 32, _VLLM, 1),
    EngineKind("vllm-32-async", 32, 1024, 32, _VLLM | {"async_scheduling": "on"}, 1),
    EngineKind("vllm-128", 128, 1024, 32, _VLLM | {"block_tokens": 128}, 1),
    EngineKind("vllm-2-ranks", 32, 1024, 32, _VLLM | {"tensor_parallel": 2}, 1, only_tight=True),
]


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Return tokens of the random checkpoints; different seeds share no block."""
    return tuple((31 * i + 57 * seed + i * i) % 500 for i in range(length))


def params(**fields: Any) -> SamplingParams:
    """Return parameters of a greedy output of eight tokens."""
    defaults = {"seed": 1, "temperature": 0, "max_tokens": 8, "ignore_eos": True}
    return SamplingParams(**(defaults | fields))


def request(number: int = 0, tokens: Sequence[int] = prompt(20), **changes: Any) -> SequenceRequest:
    """Return a request with `params()`, and some changed fields."""
    asked = SequenceRequest(id=number, root=b"root", prompt=tokens, sampling=params())
    return replace(asked, **changes)


def steps(engine: Engine) -> Iterator[Event]:
    """Yield the events until the engine has nothing to do."""
    watch = Stopwatch()
    while engine.has_work():
        assert watch.remaining(MAX_SECONDS), "the engine does not come to an end"
        yield from engine.step()


def drain(engine: Engine) -> list[Event]:
    """Return the events until the engine has nothing to do."""
    return list(steps(engine))


def admit(engine: Engine, asked: SequenceRequest) -> Admitted:
    """Add a sequence while no other runs, and return its admission."""
    engine.add(asked)
    (event,) = [event for event in drain(engine) if isinstance(event, Admitted)]
    return event


def generate(engine: Engine, asked: SequenceRequest) -> list[int]:
    """Return the output of a request that runs alone."""
    (output,) = run_local(engine, [asked])
    return output.tokens[0]


def tokens_of(events: Sequence[Event]) -> list[int]:
    """Return the tokens that were sampled for the only sequence that has some."""
    return [event.token_ids[0] for event in events if isinstance(event, SampledTokens)]


def block_of(engine: Engine, sequence_id: int, index: int) -> bytes:
    """Return the bytes of one block."""
    block = memoryview(bytearray(engine.info.object_bytes[0]))
    engine.read_blocks(sequence_id, [index], [block])
    return bytes(block)


def values(engine: Engine, block: bytes) -> Any:
    """Return a block's numbers: its bytes as the element type of its layout."""
    return np.frombuffer(block, dtype=engine.info.layout.dtype)


def same(engine: Engine, one: bytes, other: bytes) -> bool:
    """Return whether blocks hold the same KV: other chunks may round the last bits of a float."""
    precise = {"float64": 1e-9, "float32": 1e-3}.get(engine.info.layout.dtype)
    if precise is None:
        return one == other
    found, expected = values(engine, one), values(engine, other)
    return bool(np.allclose(found, expected, rtol=precise, atol=precise / 100))


def finish(engine: Engine, asked: SequenceRequest, told: set[bytes]) -> int:
    """Run a request, update the cached blocks in `told`, and return the tokens that it found."""
    found = -1
    engine.add(asked)
    for event in steps(engine):
        match event:
            case Admitted():
                found = event.cached_tokens
                engine.start(event.id, found)
            case BlocksReady():
                told.update(event.keys)
            case BlocksEvicted(group=0):
                told.difference_update(event.keys)
            case SequenceEnded():
                engine.close(event.id)
    return found


def assert_baseline(engine: Engine) -> None:
    """Check that the engine holds nothing."""
    drain(engine)
    stats = engine.stats()
    assert stats.free_pages == stats.total_pages
    assert stats.open_sequences == stats.running == stats.waiting == 0
    assert stats.pending_prompt_tokens == 0


def clear(engine: Engine) -> None:
    """Close what a test left open and empty the prefix cache; then the engine must hold nothing."""
    for number in range(MAX_ID):
        with suppress(KeyError):
            engine.close(number)
    engine.evict_blocks()
    assert_baseline(engine)
