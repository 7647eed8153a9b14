"""Whole clusters, and one engine without any that says what they must answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.kv.keys import chain_root
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.support.engine.model import MODEL

OUTPUT_TOKENS = 24
TORCH: dict[str, Any] = {"engine": "torch", "settings": {"engine.dtype": "float64"}}
"""A shape whose tokens do not depend on how a prompt is cut: sums of float64 round alike."""


Reference = Callable[..., Awaitable[list[list[tuple[int, ...]]]]]


@pytest.fixture(scope="session")
def reference(random_model: Callable[[str], Path]) -> Reference:
    """Tokens per choice from one engine in this process, by family."""
    engines: dict[str, Engine] = {}

    def run_blocking(
        family: str, prompts: Sequence[list[int]], sampling: dict[str, Any], n: int = 1
    ) -> list[list[tuple[int, ...]]]:
        if family not in engines:
            settings = EngineSettings(model=random_model(family), dtype="float64", threads=1)
            engines[family] = create_engine(settings)
        engine = engines[family]
        engine.evict_blocks()
        root = chain_root(MODEL, engine.info.weights_digest, engine.info.layout.layout_id, b"", b"")
        params = SamplingParams(max_tokens=OUTPUT_TOKENS, ignore_eos=True, **sampling)
        requests = [
            SequenceRequest(i * n + choice, root, prompt, params, (choice,))
            for i, prompt in enumerate(prompts)
            for choice in range(n)
        ]
        outputs = run_local(engine, requests)
        return [
            [tuple(outputs[i * n + choice].tokens[choice]) for choice in range(n)]
            for i in range(len(prompts))
        ]

    async def run(*args: Any, **options: Any) -> list[list[tuple[int, ...]]]:
        # Not on the event loop: a cluster that says nothing for seconds counts as dead.
        return await asyncio.to_thread(run_blocking, *args, **options)

    return run
