"""Requests that frontends still run, according to their metrics, and a message about them."""

import asyncio
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from baton.internal.v1.cluster_pb2 import ROLE_FRONTEND, Instance

_METRIC = "baton_frontend_requests_active"
_SECONDS = 0.5


async def running_requests(instances: Iterable[Instance]) -> dict[str, int]:
    """Return the number of running requests by frontend ID, of frontends that respond quickly."""
    frontends = [one for one in instances if one.role == ROLE_FRONTEND and one.metrics_address]
    counts = await asyncio.gather(*(_count(one.metrics_address) for one in frontends))
    return {one.id: count for one, count in zip(frontends, counts, strict=True)}


def waiting_sentence(running: Mapping[str, int], seconds: float) -> str:
    """Return a message about the requests that a stopping cluster waits for.

    Args:
        running: requests by frontend.
        seconds: time after which they are cancelled.
    """
    busy = {name: count for name, count in sorted(running.items()) if count}
    if not busy:
        return "No requests are running: stopping now."
    requests = "1 request" if sum(busy.values()) == 1 else f"{sum(busy.values())} requests"
    where = (
        f"on {next(iter(busy))}"
        if len(busy) == 1
        else f"({', '.join(f'{count} on {name}' for name, count in busy.items())})"
    )
    return (
        f"Waiting up to {seconds:g} s for {requests} to finish {where}. Press Ctrl-C again to kill."
    )


async def read_metrics(metrics_address: str) -> str:
    """Return the metrics of an instance in Prometheus' text format; empty: it hangs or is gone."""
    try:
        return await asyncio.to_thread(_read, f"http://{metrics_address}/metrics")
    except (OSError, HTTPException):  # the latter: it ended within its response
        return ""


async def _count(metrics_address: str) -> int:
    families = text_string_to_metric_families(await read_metrics(metrics_address))
    return int(sum(s.value for family in families for s in family.samples if s.name == _METRIC))


def _read(url: str) -> str:
    with urlopen(url, timeout=_SECONDS) as answer:
        return str(answer.read().decode())
