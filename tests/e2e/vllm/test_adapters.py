"""Adapters that `baton adapters` adds and removes while workers of vLLM serve."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from baton.client import NotFoundError
from baton.engine.local import run_local
from baton.engine.testing.random_adapter import write_random_adapter
from tests.e2e.vllm.conftest import VLLM, prompts
from tests.support.command_line import invoke
from tests.support.engine.contract import params, request
from tests.support.engine.lora import LAYERS, make_engine, merge
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-clusters"), pytest.mark.timeout(300)]

TOKENS = 16
LONG = 300


def merged(model: Path, adapter: Path | None, asked: Sequence[list[int]]) -> list[list[int]]:
    """Return the tokens of a model with an adapter in its weights, in float64."""
    at = model if adapter is None else merge(model, adapter, adapter.parent / f"in-{adapter.name}")
    engine = make_engine(at)
    try:
        sampling = params(max_tokens=TOKENS)
        requests = [request(n, prompt, sampling=sampling) for n, prompt in enumerate(asked)]
        return [output.tokens[0] for output in run_local(engine, requests)]
    finally:
        engine.close_engine()


async def command(cluster: LocalCluster, *words: str) -> None:
    options = ("--etcd-endpoint", cluster._endpoints[0], "--cluster", cluster.name)
    result = await asyncio.to_thread(invoke, ("adapters", *words, *options))
    assert result.exit_code == 0, result.output


async def test_adapters_are_added_replaced_and_removed_while_others_run(
    local_cluster: Any, llama: Path, tmp_path: Path
) -> None:
    settings = {**VLLM["settings"], "engine.adapter_slots": 2}
    cluster = await local_cluster(own=True, **{**VLLM, "settings": settings}, model=llama)
    asked = prompts(4, longest=300, seed=23)[1:]

    async def ask(prompt: list[int], model: str, tokens: int = TOKENS) -> list[int]:
        options = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        stream = cluster.client.generate(prompt, model=model, **options)
        return list((await stream.answer()).token_ids)

    async def listed(*names: str) -> None:
        async def known() -> bool:
            (model,) = await cluster.client.models()
            return model.adapters == names

        await eventually(known)

    made = {
        name: write_random_adapter(tmp_path / name, llama, seed, modules=LAYERS, scale=0.05)
        for seed, name in enumerate(("sql", "chat", "other"))
    }
    expected = {
        name: await asyncio.to_thread(merged, llama, path, asked)
        for name, path in {"": None, **made}.items()
    }
    assert len({str(each) for each in expected.values()}) == 4
    base = await ask(asked[0], MODEL, LONG)
    running = asyncio.create_task(ask(asked[0], MODEL, LONG))
    for name in ("chat", "sql"):
        await command(cluster, "add", name, str(made[name]), "--base", MODEL)
    await listed("chat", "sql")
    mixed = [(prompt, name) for name in ("sql", "", "chat") for prompt in asked]
    outputs = await asyncio.gather(*(ask(prompt, name or MODEL) for prompt, name in mixed))
    assert outputs == [tokens for name in ("sql", "", "chat") for tokens in expected[name]]
    assert await running == base, "while adapters were loaded"

    running = asyncio.create_task(ask(asked[0], "sql", LONG))
    await ask(asked[1], "sql")
    await command(cluster, "add", "sql", str(made["other"]), "--base", MODEL, "--replace")

    async def replaced() -> bool:
        return await ask(asked[0], "sql") == expected["other"][0]

    await eventually(replaced)
    await command(cluster, "remove", "chat")
    await listed("sql")
    with pytest.raises(NotFoundError):
        await ask(asked[0], "chat")
    assert (await running)[:TOKENS] == expected["sql"][0], "a stream keeps its version"
    assert [await ask(prompt, "sql") for prompt in asked] == expected["other"]
