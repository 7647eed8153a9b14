"""Workers and routers that are lost: the client sees each position once, and nothing else."""

import asyncio
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.v1 import inference_pb2
from tests.support.clock import Stopwatch, within
from tests.support.wait import eventually


def generate(stage: Any, max_tokens: int = 12, n: int = 1) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text="x" * 40, n=n)
    request.context.model = stage.model
    request.sampling.max_tokens = max_tokens
    return request


class Reading:
    """A call that is being read; `text[choice]` is what came so far, position by position."""

    def __init__(self, call: Any, n: int = 1) -> None:
        self.text = [""] * n
        self.at = [0] * n
        self.finished: Any = None
        self._call = call
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self._call:
            if event.HasField("delta"):
                delta = event.delta
                assert delta.position == self.at[delta.choice]
                self.at[delta.choice] += len(delta.token_ids)
                self.text[delta.choice] += delta.text
            if event.HasField("finished"):
                self.finished = event.finished

    async def end(self) -> None:
        async with within(8.0):
            await self._task


async def test_a_lost_decode_worker_is_replaced_mid_stream(stage: Any) -> None:
    for name in ("d0", "d1"):
        stage.worker(name).script.step_seconds = 0.02
    reading = Reading(stage.stub().Generate(generate(stage, 40, n=2)), n=2)
    await eventually(lambda: min(reading.at) > 8)
    await stage.members["d0"].crash()
    await reading.end()
    assert reading.text == [stage.said(0, 40), stage.said(1, 40)]
    assert stage.router.queries[1].context.attempt == 1
    assert list(stage.router.queries[1].excluded_instances) == ["d0"]
    assert stage.router.queries[1].output_tokens > 8
    starts = stage.worker("d1").starts()
    assert sorted(start.choice for start in starts) == [0, 1]
    assert all(start.context.attempt == 1 for start in starts)
    assert all(len(start.generate.output_so_far) > 8 for start in starts)
    assert not any(start.generate.wait_for_kv for start in starts)
    assert [step.instance for step in reading.finished.steps if step.name == "route"] == [
        "router",
        "router",
    ]
    await stage.quiet()


async def test_a_decode_worker_lost_while_prefill_runs_is_prepared_elsewhere(stage: Any) -> None:
    stage.worker("p0").script.first_token.clear()
    reading = Reading(stage.stub().Generate(generate(stage)))
    await eventually(lambda: stage.worker("d0").kinds() == ["prepare"])
    await stage.members["d0"].crash()
    await eventually(lambda: stage.worker("d1").kinds() == ["prepare"])
    stage.worker("p0").script.first_token.set()
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert stage.worker("p0").kinds() == ["prefill"]
    await stage.quiet()


async def test_a_decode_worker_that_waits_for_kv_is_replaced_by_one_that_waits(stage: Any) -> None:
    stage.worker("p0").script.committed.clear()
    stage.worker("d0").script.step_seconds = 5.0
    reading = Reading(stage.stub().Generate(generate(stage)))
    await eventually(lambda: stage.worker("d0").kinds() == ["prepare", "generate"])
    await stage.members["d0"].crash()
    await eventually(lambda: bool(stage.worker("d1").starts()))
    start = stage.worker("d1").starts()[0]
    assert start.generate.wait_for_kv
    assert len(start.generate.output_so_far) == 1
    stage.worker("p0").script.committed.set()
    await reading.end()
    assert reading.text == [stage.said(0, 12)]


async def test_a_prefill_worker_lost_before_the_first_token_is_replaced(stage: Any) -> None:
    stage.worker("p0").script.first_token.clear()
    reading = Reading(stage.stub().Generate(generate(stage, n=2)), n=2)
    await eventually(lambda: stage.worker("d0").kinds() == ["prepare"] * 2)
    await stage.members["p0"].crash()
    await reading.end()
    assert reading.text == [stage.said(0, 12), stage.said(1, 12)]
    assert stage.worker("p1").kinds() == ["prefill"]
    told = stage.worker("d0").kinds()
    assert told[:4] == ["prepare"] * 2 + ["update_sources"] * 2  # whoever computes it fulfils it
    update = stage.worker("d0").frames[2].update_sources
    assert update.sources[0].store_id == "store-of-p1"
    assert not update.prefill_done
    assert not stage.worker("d1").frames
    await stage.quiet()


async def test_without_another_prefill_worker_decode_reads_the_prompt(stage: Any) -> None:
    stage.worker("p0").script.first_token.clear()
    place = stage.router.place
    stage.router.place = lambda query: (
        stage.place("d1") if query.excluded_instances else place(query)
    )
    reading = Reading(stage.stub().Generate(generate(stage)))
    await eventually(lambda: stage.worker("d0").kinds() == ["prepare"])
    await stage.members["p0"].crash()
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert stage.worker("d0").kinds() == ["prepare", "cancel"]
    assert stage.worker("d1").kinds() == ["generate"]


async def test_a_prefill_worker_lost_after_the_first_token_is_not_waited_for(stage: Any) -> None:
    stage.worker("p0").script.committed.clear()
    stage.worker("d0").script.fetched.clear()
    reading = Reading(stage.stub().Generate(generate(stage)))
    await eventually(lambda: stage.worker("d0").kinds() == ["prepare", "generate"])
    await stage.members["p0"].crash()
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert stage.worker("d0").kinds() == ["prepare", "generate"]
    assert stage.worker("d0").prefill_done == 1
    assert len(stage.router.queries) == 1


async def test_decode_is_told_when_prefill_has_ended_and_waits_no_longer(stage: Any) -> None:
    stage.worker("d0").script.fetched.clear()
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert stage.worker("d0").kinds() == ["prepare", "generate"]
    assert stage.worker("d0").prefill_done == 1
    await stage.quiet()


async def test_a_worker_that_is_full_is_left_for_another(stage: Any) -> None:
    stage.worker("d0").script.fail = BatonError(Reason.NO_CAPACITY, "full")
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert list(stage.router.queries[1].excluded_instances) == ["d0"]
    await stage.quiet()


async def test_tokens_that_the_client_has_are_not_given_twice(stage: Any) -> None:
    first = Reading(stage.stub().Generate(generate(stage)))
    await first.end()
    stage.worker("d0").script.decode_offset = -1
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == first.text == [stage.said(0, 12)]
    await stage.quiet()


async def test_a_worker_that_leaves_tokens_out_is_left_for_another(stage: Any) -> None:
    stage.worker("d0").script.decode_offset = 1
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert list(stage.router.queries[1].excluded_instances) == ["d0"]
    await stage.quiet()


async def test_eight_placements_are_enough(stage: Any) -> None:
    for worker in stage.workers:
        worker.script.fail = BatonError(Reason.WORKER_LOST, "gone")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Reading(stage.stub().Generate(generate(stage))).end()
    error = BatonError.from_rpc_error(caught.value)
    assert error.reason is Reason.WORKER_LOST
    assert [query.context.attempt for query in stage.router.queries] == list(range(8))
    await stage.quiet()


async def test_an_error_that_is_the_requests_own_is_not_tried_elsewhere(stage: Any) -> None:
    stage.worker("d0").script.fail = BatonError(Reason.INTERNAL, "broken")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Reading(stage.stub().Generate(generate(stage))).end()
    assert BatonError.from_rpc_error(caught.value).reason is Reason.INTERNAL
    assert len(stage.router.queries) == 1
    await stage.quiet()


async def test_a_router_that_refuses_is_heard(stage: Any) -> None:
    stage.router.place = lambda query: BatonError(Reason.NO_CAPACITY, "full", retry_after=2.0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Reading(stage.stub().Generate(generate(stage))).end()
    error = BatonError.from_rpc_error(caught.value)
    assert (error.reason, error.retry_after) == (Reason.NO_CAPACITY, 2.0)


async def test_requests_go_on_while_no_router_answers(stage: Any) -> None:
    await stage.members["router"].crash()
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert reading.finished.steps[0].detail == "random placement: no router available"
    await stage.quiet()


@pytest.mark.parametrize("reason", [Reason.NO_WORKER, Reason.MODEL_NOT_FOUND])
async def test_another_router_is_asked_where_one_hears_no_worker(
    stage: Any, reason: Reason
) -> None:
    """As after it was cut off from etcd: it lives, and is registered."""
    place = stage.router.place
    stage.router.place = lambda _: BatonError(reason, "no worker has reported")
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.finished.steps[0].detail == "random placement: no router available"
    other = (await stage.add("other", cluster_pb2.ROLE_ROUTER)).double
    other.place = place
    async with within(10):
        while not other.queries:  # until the frontend has heard of it
            await Reading(stage.stub().Generate(generate(stage))).end()
    at_random = stage.frontend.sample("baton_frontend_random_placements_total")
    watch, asked = Stopwatch(), len(stage.router.queries)
    for number in range(8):  # half of those with an id are the first router's to place
        request = generate(stage)
        request.context.request_id = f"twin-{number}" if number else ""
        await Reading(stage.stub().Generate(request)).end()
    assert stage.frontend.sample("baton_frontend_random_placements_total") == at_random
    assert len(stage.router.queries) - asked < 8  # without an id the other one is asked at once
    assert watch.seconds < 2
    await stage.quiet()
    await eventually(lambda: not other.tickets, 1.0)


async def test_a_router_that_is_mute_is_left_after_a_moment(stage: Any) -> None:
    stage.router.answers.clear()
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == [stage.said(0, 12)]


@pytest.mark.parametrize("name", ["router", "p0", "d0"])
async def test_a_connection_that_goes_dead_without_a_word(stage: Any, name: str) -> None:
    for worker in stage.workers:
        worker.script.step_seconds = 0.02
    stage.worker("p0").script.first_token.clear()
    reading = Reading(stage.stub().Generate(generate(stage, 40)))
    await eventually(lambda: stage.worker("d0").kinds() == ["prepare"])
    if name != "p0":
        stage.worker("p0").script.first_token.set()
        await eventually(lambda: reading.at[0] > 4)
    stage.members[name].proxy.mute()
    watch = Stopwatch()
    if name == "router":  # noticed by the next one who asks
        await reading.end()
        reading = Reading(stage.stub().Generate(generate(stage, 3)))
    await reading.end()
    assert watch.seconds < 4.0
    assert reading.text[0] == stage.said(0, len(reading.text[0]))
    assert reading.finished


async def test_a_worker_of_another_protocol_is_not_used(stage: Any) -> None:
    stage.worker("d0").hello.protocol_version += 2
    await stage.members["d0"].proxy.cut()
    await stage.members["d0"].proxy.mend()
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert list(stage.router.queries[-1].excluded_instances) == ["d0"]
    assert not stage.worker("d0").streams


async def test_a_router_of_another_protocol_is_not_used(stage: Any) -> None:
    stage.router.hello.protocol_version += 2
    await stage.frontend.stop(drain=False)  # it speaks to the router already
    await stage.start_frontend()
    reading = Reading(stage.stub().Generate(generate(stage)))
    await reading.end()
    assert reading.text == [stage.said(0, 12)]
    assert not stage.router.tickets
