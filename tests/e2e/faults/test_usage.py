"""Usage while frontends and Postgres are killed: what clients were told is recorded, each once."""

import asyncio
import itertools
import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from baton.state.connecting import connected
from baton.state.local.server import LocalPostgres
from baton.usage.record import LOST, UsageRecord
from baton.usage.report import RecordFiles, files_of
from tests.support.engine.model import MODEL
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

KILLS = 3
CLIENTS = 12
Told = dict[str, tuple[int, int]]
"""Prompt and output tokens of the answers that ended, by the request's id."""


async def ask(http: httpx.AsyncClient, ident: str, draw: random.Random, told: Told) -> None:
    """Ask once; note what was told if the answer came to its end. Some leave before that."""
    stream, leave = draw.random() < 0.5, draw.random() < 0.1
    body: dict[str, Any] = {
        "model": MODEL,
        "prompt": [draw.randrange(3, 60) for _ in range(draw.randint(3, 40))],
        "max_tokens": draw.randint(1, 30),
        "n": draw.choice((1, 1, 2)),
        "ignore_eos": True,
    }
    headers = {"x-request-id": ident}
    if not stream:
        answer = await http.post("/v1/completions", json=body, headers=headers)
        usage = answer.raise_for_status().json()["usage"]
    else:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        usage = None
        async with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    break
                if leave and line:
                    return
                if line.startswith("data: "):
                    usage = json.loads(line.removeprefix("data: ")).get("usage")
            else:
                return
    assert usage is not None
    told[ident] = usage["prompt_tokens"], usage["completion_tokens"]


async def client(url: str, name: str, told: Told) -> None:
    """Ask until the frontend is gone."""
    draw = random.Random(name)
    with suppress(httpx.TransportError, httpx.HTTPStatusError):
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            for number in itertools.count():
                await ask(http, f"{name}-{number}", draw, told)


async def test_records_add_up_to_what_clients_were_told_though_frontends_and_postgres_are_killed(
    local_cluster: Any, own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    state = state_settings(await Databases(own_postgres).migrated())
    names = [f"frontend-{number}" for number in range(KILLS + 1)]
    settings = {
        "usage.spool_path": tmp_path / "spool",
        "usage.jsonl_path": tmp_path / "files",
        "state.url": state.url.get_secret_value(),
        "engine.sim_decode_step_seconds": 0.003,
        "engine.max_running": 64,
    }
    cluster = await local_cluster(own=True, processes=tuple(names), settings=settings)
    told: Told = {}
    for number, name in enumerate(names[:-1]):
        frontend = cluster[name]
        url = f"http://{frontend.instance.http_address}"
        before = len(told)
        asking = [asyncio.create_task(client(url, f"{name}-{one}", told)) for one in range(CLIENTS)]
        await eventually(lambda before=before: len(told) >= before + 3 * CLIENTS)
        await own_postgres.kill()
        before = len(told)
        await eventually(lambda before=before: len(told) >= before + 3 * CLIENTS)
        frontend.kill()
        await asyncio.gather(*asking)
        if number % 2:
            await own_postgres.start()
        await cluster.start(names[number + 1])
        if not number % 2:
            await own_postgres.start()
    await eventually(lambda: len(_runs(tmp_path / "spool")) == 1)  # its own
    assert await cluster[names[-1]].stop() == 0

    found = RecordFiles(files_of(tmp_path / "files"))
    records: dict[str, UsageRecord] = {}
    for record in found:
        if record.request_id.startswith("frontend-"):
            assert record.request_id not in records
            records[record.request_id] = record
    outcomes = Counter(record.outcome for record in records.values())
    # Each answer that ended has one record, with the same sums.
    recorded = {ident: records[ident] for ident in told}
    assert {record.outcome for record in recorded.values()} == {"ok"}
    assert {
        ident: (record.prompt_tokens, record.output_tokens) for ident, record in recorded.items()
    } == told
    # All others ended for somebody who did not see it, or were cut off by a kill.
    others = [record for ident, record in records.items() if ident not in told]
    assert outcomes["CANCELLED"] > 0
    assert 0 < outcomes[LOST] <= KILLS * CLIENTS
    cut_off = [record for record in others if record.outcome in ("ok", LOST)]
    assert len(cut_off) <= KILLS * CLIENTS
    assert all(record.output_tokens is None for record in others if record.outcome == LOST)
    assert not _runs(tmp_path / "spool")
    async with connected(state) as connection:
        rows = await connection.fetch(
            "select request_id, outcome, prompt_tokens, output_tokens from usage_records "
            "where request_id like 'frontend-%'"
        )
    assert sorted(map(tuple, rows)) == sorted(
        (ident, record.outcome, record.prompt_tokens, record.output_tokens)
        for ident, record in records.items()
    )


def _runs(spool: Path) -> list[Path]:
    return [path for path in spool.iterdir() if path.is_dir()]
