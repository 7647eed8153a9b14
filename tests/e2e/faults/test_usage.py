"""Usage while frontends and Postgres are killed: what clients were told is recorded, each once."""

import asyncio
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from baton.postgres.connecting import connected
from baton.postgres.local.server import LocalPostgres
from baton.usage.record import LOST, UsageRecord, decode
from baton.usage.report.files import RecordFiles, files_of
from tests.support.engine.model import MODEL
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.kafka import TOPIC, broker_behind_a_proxy, messages
from tests.support.wait import eventually

KILLS = 3
CLIENTS = 12
NO_STALL = {"usage.stall_seconds": 60}
"""On a busy machine a write can take longer than the default, and responses end without it."""
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
        async with httpx.AsyncClient(base_url=url) as http:
            for number in itertools.count():
                await ask(http, f"{name}-{number}", draw, told)


def by_request(found: Iterable[UsageRecord]) -> dict[str, UsageRecord]:
    """Return records by their requests, each of which has one."""
    records: dict[str, UsageRecord] = {}
    for record in found:
        assert record.request_id not in records
        records[record.request_id] = record
    return records


async def test_records_add_up_to_what_clients_were_told_though_frontends_and_postgres_are_killed(
    local_cluster: Any, own_postgres: LocalPostgres, tmp_path: Path
) -> None:
    state = state_settings(await Databases(own_postgres).migrated())
    names = [f"frontend-{number}" for number in range(KILLS + 1)]
    settings = {
        "usage.spool_path": tmp_path / "spool",
        **NO_STALL,
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

    records = {
        ident: record
        for ident, record in by_request(RecordFiles(files_of(tmp_path / "files"))).items()
        if ident.startswith("frontend-")
    }
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


async def test_the_request_log_counts_what_clients_were_told_though_the_broker_was_away(
    local_cluster: Any, tmp_path: Path
) -> None:
    """Nor does it matter that the frontend is killed meanwhile; and the files say the same."""
    told: Told = {}
    async with broker_behind_a_proxy() as proxy:
        settings = {
            "usage.spool_path": tmp_path / "spool",
            **NO_STALL,
            "usage.jsonl_path": tmp_path / "files",
            "usage.kafka.brokers": proxy.address,
            "usage.kafka.topic": TOPIC,
            "usage.kafka.timeout_seconds": 1,
            "engine.sim_decode_step_seconds": 0.003,
            "engine.max_running": 64,
        }
        names = ("frontend-0", "frontend-1")
        cluster = await local_cluster(own=True, processes=names, settings=settings)

        def load(name: str) -> "asyncio.Future[list[None]]":
            url = f"http://{cluster[name].instance.http_address}"
            return asyncio.gather(
                *(client(url, f"{name}-{number}", told) for number in range(CLIENTS))
            )

        async def more() -> None:
            before = len(told)
            await eventually(lambda: len(told) >= before + 5 * CLIENTS)

        asking = load(names[0])
        await eventually(lambda: (tmp_path / "files").exists())
        await more()
        await proxy.cut()
        await eventually(lambda: _failures(cluster[names[0]].instance.metrics_address))
        await more()
        cluster[names[0]].kill()
        await asking
        await proxy.mend()
        await cluster.start(names[1])
        asking = load(names[1])
        await more()
        stopped, _ = await asyncio.gather(cluster[names[1]].stop(), asking)
        assert stopped == 0
        # A process that stops has no more than a moment for a broker that is slow: the next one
        # delivers what is left.
        await cluster.start(names[0])
        await eventually(lambda: len(_runs(tmp_path / "spool")) == 1)
        assert await cluster[names[0]].stop() == 0
        in_files = {
            record.id: record
            for record in by_request(RecordFiles(files_of(tmp_path / "files"))).values()
        }
        found = await messages(proxy.address, len(in_files))
    in_log = {record.id: record for message in found for record in [decode(message.value())]}
    assert in_log == in_files
    records = by_request(in_log.values())
    recorded = {ident: records[ident] for ident in told}
    assert {record.outcome for record in recorded.values()} == {"ok"}
    assert {
        ident: (record.prompt_tokens, record.output_tokens) for ident, record in recorded.items()
    } == told
    assert not _runs(tmp_path / "spool")


def _runs(spool: Path) -> list[Path]:
    return [path for path in spool.iterdir() if path.is_dir()]


async def _failures(address: str) -> float:
    """How often a frontend's brokers did not take records."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://{address}/metrics")).text
    found = re.findall(r'baton_usage_sink_failures_total\{.*sink="kafka".*\} (.*)', text)
    return sum(map(float, found))
