"""An engine's info, for tests that need no engine."""

from dataclasses import replace

from baton.engine.base import ContextLimit, EngineInfo
from baton.kv.layout import Layout


def engine_info(block_tokens: int = 4, **changes: object) -> EngineInfo:
    """Return the info of an engine with 100 tokens, no end of sequence, and blocks of 4 bytes."""
    info = EngineInfo(
        layout=Layout("test/1", "cpu", "", "uint8", 1, 1, 1, block_tokens),
        block_bytes=4,
        weights_digest=b"",
        context_tokens=32,
        context_limit=ContextLimit.CHECKPOINT,
        checkpoint_context_tokens=32,
        vocab_tokens=100,
        eos_token_ids=(),
        features=(),
        max_running=4,
        max_waiting=8,
    )
    return replace(info, **changes)  # type: ignore[arg-type]  # by name
