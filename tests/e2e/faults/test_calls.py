"""A decode worker is killed in the middle of calls: they go on, valid, with the same tokens."""

import asyncio

from baton.request.stream_events import FinishReason
from bench.structured.calls import Call
from tests.support.engine.model import MODEL, TRAINED
from tests.support.services.cluster import LocalCluster

CALLS, NOTES = 4, 2
DECODES = ("decode-0", "decode-1")
SETTINGS = {"engine.dtype": "float64", "engine.threads": 1}


async def test_calls_go_on_at_another_worker(local_cluster) -> None:
    cluster: LocalCluster = await local_cluster(
        own=True,
        engine="torch",
        model=TRAINED,
        decode=2,
        processes=DECODES,
        settings={**SETTINGS, "engine.model_name": MODEL},
    )

    async def streamed(*, kill: bool) -> list[Call]:
        calls = [Call(seed, NOTES) for seed in range(CALLS)]
        streams = [asyncio.create_task(call.stream(cluster.client, MODEL)) for call in calls]
        if kill:
            while not any(len(call.arguments) > 8 for call in calls):
                await asyncio.sleep(0.005)
            # Either worker may have had the calls that have ended: kill the one that is at work.
            loads = {name: (await cluster.load(cluster[name])).streams for name in DECODES}
            busiest = max(DECODES, key=loads.__getitem__)
            assert loads[busiest] > 0, "no call was being written"
            cluster[busiest].kill()
        await asyncio.gather(*streams)
        return calls

    whole = await streamed(kill=False)
    moved = await streamed(kill=True)
    assert sum(call.decoders > 1 for call in moved) > 0, "nothing was moved"
    for before, after in zip(whole, moved, strict=True):
        assert after.said == before.said
        assert after.reason is FinishReason.TOOL_CALLS
        assert after.valid
