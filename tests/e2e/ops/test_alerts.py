"""The alerting rules in docs/ fire when they should."""

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from baton.cli.admin.certs.authority import Authority
from baton.client import AsyncClient, BatonClientError
from baton.host.ports import held_port
from baton.telemetry.logs import get_logger
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL, ROOT, prompt_of
from tests.support.network.listener import listening
from tests.support.tls.roles import role
from tests.support.wait import eventually

log = get_logger(__name__)

BROKEN = """\
baton_usage_sink_oldest_record_timestamp_seconds{{sink="kafka"}} 1
baton_usage_sink_oldest_record_timestamp_seconds{{sink="postgres"}} 0
baton_usage_spool_bytes 260
baton_usage_spool_capacity_bytes 300
baton_usage_spool_full 1
baton_usage_spool_stalled 1
baton_usage_damaged_bytes_total {grows}
baton_usage_unrecorded_requests_total 0
baton_usage_records_refused_total{{sink="postgres"}} {grows}
baton_state_database_available 0
baton_conversations_spool_oldest_timestamp_seconds{{sink="postgres"}} 100
baton_conversations_spool_bytes 260
baton_conversations_spool_capacity_bytes 300
baton_conversations_spool_full 1
baton_conversations_spool_stalled 1
baton_conversations_spool_dropped_total {grows}
baton_conversations_spool_damaged_bytes_total 0
baton_frontend_limit_refusals_total{{limit="unanswered",subject=""}} {grows}
baton_router_queue_oldest_seconds{{model="m"}} 100
baton_batch_late_seconds 4000
etcd_mvcc_db_total_size_in_bytes 90
etcd_server_quota_backend_bytes 100
baton_router_refusals_total{{class="batch",reason="overloaded"}} {grows}
baton_router_ttft_targets_total{{class="batch",outcome="kept"}} 1
baton_router_ttft_targets_total{{class="batch",outcome="missed"}} {grows}
"""
"""What processes show whose disk, database and routers are broken: hard to have all at once."""

RULES = ROOT / "docs" / "alerts.yaml"
PROMETHEUS = shutil.which("prometheus")
LATE = {
    "limits.max_requests": 12,
    "engine.max_running": 4,
    "engine.kv_bytes": 64 * 1024,
    "engine.sim_prefill_tokens_per_second": 300.0,
    "engine.sim_decode_step_seconds": 0.01,
}
PROCESSES = ("frontend-0", "prefill-0", "decode-0")
NO_DISK = "kvstore-9"


def rules() -> dict[str, str]:
    """Expressions by the alert's name."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


@asynccontextmanager
async def prometheus(directory: Path, targets: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    """A Prometheus that scrapes these and those that `scrape` names later, with the rules."""
    with held_port() as port:
        async with prometheus_at(f"127.0.0.1:{port}", directory, targets) as client:
            yield client


@asynccontextmanager
async def prometheus_at(
    address: str, directory: Path, targets: list[str]
) -> AsyncIterator[httpx.AsyncClient]:
    scrape(directory, targets)
    files = [{"files": [str(directory / "targets.json")], "refresh_interval": "250ms"}]
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "baton", "file_sd_configs": files}],
    }
    path = directory / "prometheus.yml"
    path.write_text(json.dumps(config))
    with (directory / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PROMETHEUS or "",
            f"--config.file={path}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}",
            stdout=log,
            stderr=log,
        )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://{address}", timeout=DEADLINE_SECONDS
        ) as client:

            async def ready() -> bool:
                try:
                    return (await client.get("/-/ready")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(ready, 20)
            yield client
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def broken_frontend() -> AsyncIterator[str]:
    """Serve BROKEN; yield where."""
    scrapes = itertools.count(1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = BROKEN.format(grows=next(scrapes))
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}"
        writer.write(f"{head}\r\nconnection: close\r\n\r\n{body}".encode())
        await writer.drain()

    async with listening(answer) as port:
        yield f"127.0.0.1:{port}"


def scrape(directory: Path, targets: list[str]) -> None:
    """Say what a Prometheus scrapes from now on."""
    new = directory / "targets.new"
    new.write_text(json.dumps([{"targets": targets}]))
    new.rename(directory / "targets.json")


async def value(client: httpx.AsyncClient, expression: str) -> float | None:
    """The largest value of an expression now; None where it gives nothing."""
    answer = (await client.get("/api/v1/query", params={"query": expression})).json()
    assert answer["status"] == "success", answer
    values = [float(sample["value"][1]) for sample in answer["data"]["result"]]
    return max(values, default=None)


@pytest.mark.soak
@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus here: apt-get install it")
async def test_each_alert_fires_when_it_should_and_not_before(
    local_cluster: Any, tmp_path: Path
) -> None:
    cluster = await local_cluster(own=True, processes=(*PROCESSES, NO_DISK), settings=LATE)
    targets = [cluster[each].instance.metrics_address for each in PROCESSES]
    alerts = rules()
    async with broken_frontend() as broken, prometheus(tmp_path, targets) as client:
        up = 'sum(up{job="baton"})'
        await eventually(lambda: _is(client, up, len(PROCESSES)), 10)
        await asyncio.sleep(1.0)  # some scrapes of a cluster that is well
        assert {name: await value(client, expr) for name, expr in alerts.items()} == dict.fromkeys(
            alerts
        )
        short_lived = role(tmp_path, Authority.new("one", 1), "kvstore")
        wrong = {
            "store.disk_path": tmp_path / "no" / "disk",
            "store.disk_bytes": 64 * 2**20,
            "tls.cert": short_lived.cert,
            "tls.key": short_lived.key,
            "tls.ca": short_lived.ca,
            "etcd.plaintext": True,
        }
        store = await cluster.start(NO_DISK, wrong)
        scrape(tmp_path, [*targets, store.instance.metrics_address, broken])
        crowd = [asyncio.create_task(_ask(cluster.client, number)) for number in range(40)]

        async def fires(name: str) -> None:
            found = await eventually(lambda: value(client, alerts[name]), 30)
            log.info("alerts.rule.fired", alert=name, value=found)

        await asyncio.gather(*(fires(name) for name in alerts if name != "BatonErrors"))
        cluster["decode-0"].kill()
        await asyncio.gather(*crowd)
        firing = asyncio.create_task(fires("BatonErrors"))
        while not firing.done():  # a rate needs a series that grows after its first sample
            await _ask(cluster.client, 0, timeout=1.0)
        await firing


async def _is(client: httpx.AsyncClient, expression: str, expected: float) -> bool:
    return await value(client, expression) == expected


async def _ask(client: AsyncClient, number: int, timeout: float = 30.0) -> None:
    stream = client.generate(
        prompt_of(200, number), model=MODEL, max_tokens=1500, ignore_eos=True, timeout=timeout
    )
    try:
        await stream.answer()
    except BatonClientError:
        return
