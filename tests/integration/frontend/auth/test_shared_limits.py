"""A limit is one, whichever of several frontends is asked and whichever router owns it."""

import asyncio
from typing import Any

import grpc
import pytest

from baton.cluster.rendezvous import choose
from baton.internal.v1 import cluster_pb2
from baton.rpc.channels import open_channel
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.spec import LimitId, Measure, Subject
from baton.tenancy.records.tenants import Tier
from baton.v1 import inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.integration.frontend.auth.test_keys import chat
from tests.support.clock import within
from tests.support.wait import eventually

FULL = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
AT_ONCE = LimitId(Subject.TENANT, "acme", Measure.AT_ONCE)


class Frontends:
    """Two frontends and the requests that run at them."""

    def __init__(self, keys: Keys, secret: str, addresses: list[str]) -> None:
        self.running: list[Any] = []
        self._keys = keys
        self._metadata = tuple(bearer(secret).items())
        self._channels = [open_channel(address) for address in addresses]
        for channel in self._channels:
            keys.stage.stack.push_async_callback(channel.close, None)
        self._asked = 0

    async def admitted(self) -> bool:
        """Begin a request at one frontend after another; return whether it runs."""
        self._asked += 1
        request = chat(self._keys.stage)
        request.sampling.max_tokens = 4000
        stub: Any = InferenceServiceStub(self._channels[self._asked % 2])
        call = stub.Chat(request, metadata=self._metadata)
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            assert error.code() in FULL, error
            return False
        self.running.append(call)
        return True

    async def known(self) -> bool:
        """Return whether all frontends know the key."""
        for channel in self._channels:
            stub: Any = InferenceServiceStub(channel)
            try:
                await stub.ListModels(inference_pb2.ListModelsRequest(), metadata=self._metadata)
            except grpc.aio.AioRpcError:
                return False
        return True

    async def count(self, tries: int) -> int:
        """Return how many of so many requests are admitted."""
        return sum([await self.admitted() for _ in range(tries)])

    def end_one(self) -> None:
        self.running.pop().cancel()


@pytest.fixture
async def frontends(empty_stage: Any) -> Any:
    """Two real routers, which know no worker, two workers, two frontends; four may run at once."""
    stage = empty_stage
    stage.routers = [await stage.services("router", {}, f"router-{number}") for number in (0, 1)]
    for name, role in (("p0", cluster_pb2.ROLE_PREFILL), ("d0", cluster_pb2.ROLE_DECODE)):
        await stage.add(name, role)
        stage.worker(name).script.step_seconds = 0.05
    await stage.start_frontend({"auth.mode": "keys"})
    second = await stage.services("frontend", {"auth.mode": "keys"}, "frontend-2")
    keys = Keys(stage, Administration(stage.client, stage.cluster))
    await keys.admin.create_tenant("acme", Tier.PRO, requests_at_once=4)
    _, secret = await keys.key()
    made = Frontends(keys, secret, [stage.grpc_address, second.address])
    await eventually(made.known)
    await eventually(made.admitted)  # its owner knows by now what runs
    yield made
    for call in made.running:
        call.cancel()


async def test_two_frontends_and_two_routers_share_it(frontends: Any) -> None:
    assert await frontends.count(8) == 3
    frontends.end_one()
    async with within(1):
        await eventually(frontends.admitted)
    assert await frontends.count(4) == 0
    await frontends._keys.admin.update_tenant("acme", requests_at_once=6)
    async with within(1):
        await eventually(frontends.admitted)
    assert await frontends.count(4) == 1


async def test_when_its_owner_is_gone_another_counts_what_runs(frontends: Any) -> None:
    assert await frontends.count(8) == 3
    stage = frontends._keys.stage
    by_incarnation = {one.instance.incarnation: one for one in stage.routers}
    owner = by_incarnation[choose(AT_ONCE.digest(), by_incarnation)]
    await owner.stop(drain=False)
    stopped = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < stopped + 1.5:
        assert not await frontends.admitted()
    frontends.end_one()
    async with within(2):
        await eventually(frontends.admitted)
    assert await frontends.count(4) == 0
