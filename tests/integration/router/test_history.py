"""What routers keep of ended requests is explained after a restart; what is damaged is said."""

import os
import shutil
from pathlib import Path
from typing import Any

from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.rpc.channels import open_channel
from baton.usage.record import UsageRecord, encode
from tests.integration.router.conftest import FakeFrontend, World
from tests.support.doubles.member import MODEL
from tests.support.processes.launcher import Launcher
from tests.support.usage.records import begun, ended
from tests.support.wait import eventually

CHAIN = [number.to_bytes(16, "little") for number in range(64)]
PAGES = {"free_pages": 1000, "total_pages": 1000, "prefill_tokens_per_second": 1000.0}
SLOW: dict[str, Any] = {
    "router": "router-0",
    "prefill_worker": "d1",
    "decode_worker": "d1",
    "kv_store": "kvstore-7",
    "cache_tier": "remote",
    "transfer_seconds": 8.5,
    "first_token_seconds": 9.0,
    "predicted_transfer_seconds": 0.02,
    "target_first_token_seconds": 2.0,
}
SENTENCE = "Slow because of transfer: 8.50 s waiting for KV from store kvstore-7 at worker d1"


async def send(frontend: FakeFrontend, kind: str, record: UsageRecord | bytes) -> None:
    data = record if isinstance(record, bytes) else encode(record)
    kept = router_pb2.KeepRequest(kind=kind, record=data, error="it is gone")
    frame = router_pb2.FrameToRouter(keep_request=kept)
    await frontend.call.write(router_pb2.PlaceRequest(frames=[frame]))


async def explained(router: Any, request_id: str) -> router_pb2.ExplainResponse:
    channel = open_channel(router.address)
    try:
        asked = router_pb2.ExplainRequest(request_id=request_id)
        return await RouterServiceStub(channel).Explain(asked)
    finally:
        await channel.close(None)


async def test_what_a_frontend_sends_is_explained_after_a_restart(
    world: World, launcher: Launcher, tmp_path: Path
) -> None:
    settings = {"history.path": tmp_path / "history"}
    await (await world.decode("d1")).load(**PAGES)
    router = await world.router(settings)
    frontend = world.frontend(router)
    context = {"request_id": "slow-1", "tenant": "acme", "model": MODEL}
    placed = await frontend.place(CHAIN, context=context)
    await send(frontend, "slow", ended(begun("slow-1"), **SLOW))
    for kind, record in (("slow", b"{}"), ("odd", encode(begun("x"))), ("slow", b"x" * 70_000)):
        await send(frontend, kind, record)
    await send(frontend, "failed", ended(begun("failed-1"), outcome="WORKER_LOST"))
    await eventually(lambda: used(tmp_path / "history", "failed"))
    await router.stop(drain=False)
    shutil.copytree(tmp_path / "history", tmp_path / "torn")
    again = await world.router(settings)
    response = await explained(again, "slow-1")
    assert (len(response.explanations), response.kept_error) == (0, "")
    (kept,) = response.kept
    assert kept.ended.kind == "slow"
    (decision,) = kept.explanations
    assert decision.reason == placed.prediction.reason
    assert [one.decode_worker for one in decision.candidates] == ["d1"]
    assert not (await explained(again, "x")).kept
    main = ("-c", "from baton.cli.app import main; main()", "route", "explain", "slow-1")
    at = ("--etcd-endpoint", ",".join(world.etcd.endpoints), "--cluster", world.cluster)
    code, out, err = await launcher.run((*main, *at), {**os.environ, "COLUMNS": "200"})
    assert (code, SENTENCE in out, "kept by router-1 as slow" in out) == (0, True, True), (out, err)


async def test_a_damaged_file_is_said_in_a_sentence(world: World, tmp_path: Path) -> None:
    settings = {"history.path": tmp_path}
    await (await world.decode("d1")).load(**PAGES)
    frontend = world.frontend(await world.router(settings))
    await frontend.place(CHAIN)
    await send(frontend, "slow", ended(begun("slow-1"), **SLOW))
    file = await eventually(lambda: used(tmp_path, "slow"))
    file.write_bytes(file.read_bytes()[:-9])
    response = await explained(world.routers[0], "slow-1")
    assert not response.kept
    assert response.kept_error == "1 line is damaged, probably by a crash"


def used(path: Path, kind: str) -> Path | None:
    """The file of a kind, once something is in it."""
    return next((one for one in path.glob(f"{kind}-*") if one.stat().st_size), None)
