"""Bits that flip in the store cost vLLM whole blocks of computing, and never a token."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from baton.engine.base import Engine
from baton.engine.factory import create_engine
from baton.kv.keys import chain_root, prompt_keys
from baton.kv.verify import ALWAYS, NEVER
from baton.settings import EngineSettings
from tests.integration.worker.test_flipped_bits import MODEL, PROMPT_TOKENS, Rig, rig
from tests.support.engine.model import ROOT
from tests.support.stores import MIB

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-engines")]

ROUNDS = 6


@pytest.fixture(scope="module")
def make_engine() -> Callable[[], Engine]:
    settings = EngineSettings(
        kind="vllm",
        model=ROOT / "models" / "baton-tiny",
        dtype="float32",
        threads=1,
        kv_bytes=64 * MIB,
        decode_chunk_tokens=512,
    )
    return lambda: create_engine(settings)


def flip(it: Rig, index: int) -> None:
    """Flip all bits of a block of the prompt, where the store keeps it."""
    info = it.core.engine.info
    root = chain_root(MODEL, info.weights_digest, info.layout.layout_id, b"", b"salt")
    key = prompt_keys(root, it.prompt, info.layout.block_tokens).full[index]
    (slot,) = [slot for slot in it.store.store.table.objects() if slot.object_id.key == key]
    view = it.store.store.arena.view(slot)
    view[:] = bytes(byte ^ 0xFF for byte in view)


@pytest.mark.parametrize("verify", [ALWAYS, NEVER])
async def test_a_poisoned_block_is_computed_with_those_behind_it(
    make_engine: Callable[[], Engine], tmp_path: Path, verify: str
) -> None:
    draw = random.Random(verify)
    wrong = 0
    async with rig(make_engine, tmp_path, "shm", verify, "poisoned") as it:
        clean, _ = await it.ask()
        again, cached = await it.ask()
        assert (again, cached) == (clean, PROMPT_TOKENS - 1)
        block = it.core.engine.info.layout.block_tokens
        for _ in range(ROUNDS):
            index = draw.randrange(PROMPT_TOKENS // block)
            flip(it, index)
            before = it.core.engine.stats().computed_tokens
            tokens, cached = await it.ask()
            computed = it.core.engine.stats().computed_tokens - before
            wrong += tokens != clean
            if verify == ALWAYS:
                assert cached == index * block
                assert computed == PROMPT_TOKENS - cached + len(clean) - 1
            else:
                assert cached == PROMPT_TOKENS - 1
    assert wrong == 0 if verify == ALWAYS else wrong > 0
