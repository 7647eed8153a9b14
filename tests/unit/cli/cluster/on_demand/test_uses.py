"""How models are used, from the metrics of routers and workers."""

import pytest

from baton.cli.cluster.local.on_demand.uses import UseReader
from baton.internal.v1.cluster_pb2 import ROLE_COMBINED, ROLE_ROUTER, Instance
from baton.on_demand.turns import ModelUse

OLDEST = "baton_router_queue_oldest_seconds"
METRICS = {
    "r0": f'{OLDEST}{{model="a"}} 0.0\n{OLDEST}{{model="c"}} 2.5\n',
    "r1": f'{OLDEST}{{model="c"}} 4.0\n',
    "w0": "baton_worker_streams 0.0\n",
    "w1": "baton_worker_streams 3.0\n",
    "w2": "",
}


async def test_queues_and_streams_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(address: str) -> str:
        return METRICS[address]

    monkeypatch.setattr("baton.cli.cluster.local.on_demand.uses.read_metrics", read)
    roles = {"r": ROLE_ROUTER, "w": ROLE_COMBINED}
    instances = [Instance(id=one, metrics_address=one, role=roles[one[0]]) for one in METRICS]
    reader = UseReader(lambda: instances, lambda: 100.0)
    workers = {"a": ["w0"], "b": ["w0", "w1"], "c": [], "d": ["w2"], "e": ["w3"]}
    assert await reader.read(workers) == {
        "a": ModelUse(None, running=False),
        "b": ModelUse(None, running=True),
        "c": ModelUse(96.0, running=False),
        "d": ModelUse(None, running=True),  # it does not respond: busy, as far as is known
        "e": ModelUse(None, running=False),  # it is not there yet
    }
