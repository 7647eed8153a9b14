"""The alerting rules in docs/: they name metrics that exist, and fire when they should."""

import asyncio
import json
import re
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import baton.worker.metrics
import services.frontend.metrics
import services.kvstore.metrics
import services.router.metrics
from baton.client import AsyncClient, BatonClientError
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter, Gauge, Histogram
from tests.support.model import MODEL, ROOT, prompt_of
from tests.support.wait import eventually

log = get_logger(__name__)

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


def rules() -> dict[str, str]:
    """Expressions by the alert's name."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def test_metrics_that_alerts_name_exist() -> None:
    declared: set[str] = set()
    for module in (
        baton.worker.metrics,
        services.frontend.metrics,
        services.kvstore.metrics,
        services.router.metrics,
    ):
        for family in vars(module).values():
            if isinstance(family, Counter | Gauge | Histogram):
                (described,) = family._of_process.describe()
                suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket"]}
                declared |= {described.name + each for each in suffixes[described.type]}
    named = set(re.findall(r"\b(?:baton|gen_ai|vllm)[\w:]+", " ".join(rules().values())))
    assert named
    assert named <= declared


@asynccontextmanager
async def prometheus(directory: Path, targets: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    """A Prometheus that scrapes these, with the rules."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    scrape = {"job_name": "baton", "static_configs": [{"targets": targets}]}
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [scrape],
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
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=5) as client:

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
    cluster = await local_cluster(own=True, processes=PROCESSES, settings=LATE)
    targets = [cluster[each].instance.metrics_address for each in PROCESSES]
    alerts = rules()
    async with prometheus(tmp_path, targets) as client:
        up = 'sum(up{job="baton"})'
        await eventually(lambda: _is(client, up, len(PROCESSES)), 10)
        await asyncio.sleep(1.0)  # some scrapes of a cluster that is well
        assert {name: await value(client, expr) for name, expr in alerts.items()} == dict.fromkeys(
            alerts
        )
        crowd = [asyncio.create_task(_ask(cluster.client, number)) for number in range(40)]

        async def fires(name: str) -> None:
            found = await eventually(lambda: value(client, alerts[name]), 30)
            log.info("alert fires", alert=name, value=found)

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
