"""Part `connectors`: the handover of a prompt's KV by Baton and by connectors of vLLM.

With vLLM's, a client or proxy requests one token from the prefill engine, and then the whole output
from the decode engine, with the `kv_transfer_params` of the first response. The decode engine
fetches the KV, and samples the first token again.
"""

import argparse
import asyncio
import random
import re
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from baton.client import AsyncClient
from baton.cluster.etcd.local import free_port
from bench.harness import ROOT
from bench.harness.checkpoints import VOCAB, random_llama
from bench.harness.child import Helper, log_path
from bench.harness.cluster import cluster
from bench.harness.table import Table
from bench.serving.generate import greedy
from bench.vllm.handover import PROMPT_TOKENS
from bench.vllm.load import SETTINGS
from bench.vllm.peers import async_llm, two_cores

Row = dict[str, float]
_COLUMNS = ("first", "next", "second")
_NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
_OFFLOADING = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use": 1 << 30},
}
_REMOTE_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
_OUTPUT_TOKENS = 3
_IDLE_SECONDS = 0.3


def prompts(count: int) -> list[list[int]]:
    """Return distinct random prompts; the first one is a warm-up."""
    draw = random.Random(1)
    return [[draw.randrange(256, VOCAB) for _ in range(PROMPT_TOKENS)] for _ in range(count + 1)]


async def by_baton(model: Path, asked: list[list[int]]) -> list[Row]:
    """Hand over every prompt from a prefill to a decode worker."""
    settings = {**SETTINGS, "BATON_PLACEMENT_DISAGGREGATION": "always"}
    workers = ("--engine=vllm", "--prefill=1", "--decode=1", "--pin", f"--model={model}")
    rows: list[Row] = []
    async with (
        cluster(*workers, settings=settings) as up,
        AsyncClient(up.grpc, retries=0) as client,
    ):
        generate = greedy(client, up.model)
        for prompt in asked:
            times: list[float] = []
            began = time.perf_counter()
            async for count in generate(prompt, _OUTPUT_TOKENS):
                times += [time.perf_counter() - began] * count
            rows.append({"first": times[0], "next": times[1] - times[0], "second": times[1]})
            await asyncio.sleep(_IDLE_SECONDS)
    return rows[1:]


async def by_connector(
    name: str, transfer: dict[str, Any], model: Path, asked: list[list[int]], nixl: Path
) -> tuple[list[Row], str]:
    """Hand over every prompt from one vLLM to another; return also the reason of a failure."""
    logs = [f"{name}-{role}" for role in ("prefill", "decode")]
    try:
        async with AsyncExitStack() as stack:
            engines = []
            for core, log in zip(two_cores(), logs, strict=True):
                settings = {
                    "PYTHONPATH": f"{ROOT}:{nixl}",
                    "UCX_NET_DEVICES": "lo",
                    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                    "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
                }
                started = async_llm(
                    model, [core], [core], transfer=transfer, settings=settings, log=log
                )
                engines.append(await stack.enter_async_context(started))
            prefill, decode = engines
            rows = [await _hand_over(prefill, decode, prompt) for prompt in asked]
            return rows[1:], ""
    except SystemExit:
        return [], _cause(logs)


async def _hand_over(prefill: Helper, decode: Helper, prompt: list[int]) -> Row:
    question = {"ask": "answer", "prompt": prompt}
    began = time.perf_counter()
    first = await prefill.ask({**question, "output": 1, "transfer": _REMOTE_DECODE})
    transfer = first["transfer"]
    if not transfer:
        raise RuntimeError("the prefill engine named no blocks: nothing was handed over")
    answer = await decode.ask({**question, "output": _OUTPUT_TOKENS, "transfer": transfer})
    await asyncio.sleep(_IDLE_SECONDS)
    if answer["tokens"][:1] != first["tokens"]:
        print(f"the engines sampled {first['tokens']} and {answer['tokens'][:1]}")
    at = first["times"][0]
    times = answer["times"]
    # All on the clock that processes of a machine share.
    return {"first": at - began, "next": times[0] - at, "second": times[1] - began}


def _cause(logs: list[str]) -> str:
    """Return the first error that an engine's process reported."""
    for log in logs:
        for line in log_path(log).read_text(errors="replace").splitlines():
            if found := re.search(r"\b(\w*(?:Error|Exception): .+)", line):
                return found[1]
    return f"it ended: see {log_path(logs[0])}"


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure Baton before and after vLLM's connectors, so that a drift of the machine shows."""
    model = random_llama("64M")
    asked = prompts(options.prompts)
    nixl = options.nixl.absolute()
    print(
        f"\nconnectors: {options.prompts} prompts of {PROMPT_TOKENS} tokens, one after the other; "
        "64M Llama in bf16, one core each for\nprefill and decode. Milliseconds, median (best). "
        "next: from the prefill engine's token to the\ndecode engine's first, one decode step "
        "included; second: from asking until there are two tokens."
    )
    table = Table(
        ("by", "<20"), *[(name, "15") for name in ("first token", "next", "second token")]
    )

    def show(name: str, rows: list[Row]) -> None:
        cells = []
        for column in _COLUMNS:
            values = [row[column] * 1e3 for row in rows]
            cells.append(f"{statistics.median(values):.1f} ({min(values):.1f})")
        table.row(name, *cells)

    before = await by_baton(model, asked)
    show("Baton", before)
    results: dict[str, Any] = {"Baton": before}
    for transfer in (_NIXL, _OFFLOADING):
        name = str(transfer["kv_connector"])
        rows, error = await by_connector(name, transfer, model, asked, nixl)
        results[name] = rows or error
        if rows:
            show(name, rows)
        else:
            print(f"{name} cannot run here: {error}")
    after = await by_baton(model, asked)
    show("Baton again", after)
    results["Baton again"] = after
    ours = before + after
    if isinstance(theirs := results["NixlConnector"], list):
        for column in _COLUMNS:
            best = min(row[column] for row in ours) / min(row[column] for row in theirs)
            middle = statistics.median(row[column] for row in ours) / statistics.median(
                row[column] for row in theirs
            )
            print(f"{column}: Baton over NixlConnector {middle:.2f} (best {best:.2f})")
    return results
