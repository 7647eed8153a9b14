"""Prefill and decode workers in this process, driven as a frontend drives them."""

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration

from baton.errors import BatonError, Reason
from baton.internal.v1.worker_pb2 import (
    END_REASON_LENGTH,
    END_REASON_PREFILLED,
    Generate,
    Prefill,
    Prepare,
    StreamFailed,
    StreamFinished,
    StreamHandedOver,
)
from baton.rpc.protocol import PAUSE, VERSION
from baton.v1 import common_pb2
from baton.worker.stream import probation
from tests.integration.worker.conftest import ALONE, SIM, at_baseline, local_tokens
from tests.support.services.service import NO_SETTINGS
from tests.support.services.settings import environment
from tests.support.stores import stat_at
from tests.support.wait import eventually

PROMPT = list(range(100, 333))  # 14 full blocks and a partial one


async def _pool(start_service, settings=NO_SETTINGS):
    settings = {**SIM, **settings}
    await start_service("kvstore", settings, instance_id="store")
    return await asyncio.gather(
        start_service("prefill", settings), start_service("decode", settings)
    )


async def test_a_prompt_read_on_one_worker_is_answered_on_another(start_service, open_run):
    prefill, decode = await _pool(start_service)
    reader, writer = await open_run(prefill.address), await open_run(decode.address)
    await asyncio.gather(
        writer.start(stream_id=1, prompt_token_ids=PROMPT, prepare=Prepare()),
        reader.start(stream_id=1, prompt_token_ids=PROMPT, prefill=Prefill(n=1)),
    )
    await reader.until(lambda: reader.tokens[1][0])
    first = reader.tokens[1][0]
    await writer.generate(1, first)
    await asyncio.gather(reader.ended(1), writer.ended(1))

    assert first + writer.tokens[1][0] == local_tokens(prompt_token_ids=PROMPT)
    assert reader.ends[1].reasons == [END_REASON_PREFILLED]
    assert writer.ends[1].reasons == [END_REASON_LENGTH]
    assert writer.prepared[1].ready_tokens == len(PROMPT)
    assert writer.prepared[1].transport == "shm"
    # The engine's own count: the prompt went through the prefill worker's passes only.
    assert (await at_baseline(reader)).computed_tokens == len(PROMPT)
    assert (await at_baseline(writer)).computed_tokens == 7


@pytest.mark.parametrize("version", [VERSION - 1, VERSION])
async def test_frontends_of_this_version_and_the_one_before_get_the_same(
    start_service, open_run, version
):
    worker = await start_service("combined", ALONE)
    run = await open_run(worker.address, version)
    for number in range(1, 4):
        await run.start(stream_id=number, prompt_token_ids=PROMPT, generate=Generate())
    await run.ended(1, 2, 3)
    expected = local_tokens(prompt_token_ids=PROMPT)
    assert [run.tokens[number][0] for number in range(1, 4)] == [expected] * 3
    assert any(step.stream_ids for step in run.steps) is (version == VERSION)
    assert any(step.streams for step in run.steps) is (version < VERSION)


async def test_decode_has_early_blocks_while_prefill_still_computes(start_service, open_run):
    slow = {"engine.sim_prefill_tokens_per_second": 640}  # 0.1 s per chunk
    prefill, decode = await _pool(start_service, slow)
    reader, writer = await open_run(prefill.address), await open_run(decode.address)
    prompt = list(range(1000))
    await writer.start(stream_id=1, prompt_token_ids=prompt, prepare=Prepare())
    await reader.start(stream_id=1, prompt_token_ids=prompt, prefill=Prefill(n=1))
    await reader.until(lambda: reader.tokens[1][0])
    await writer.generate(1, reader.tokens[1][0])
    await writer.ended(1)
    # Fetched over the time of the computation, not after it.
    assert writer.prepared[1].fetch_seconds > 0.8


async def test_every_choice_of_one_prefill_goes_on_elsewhere(start_service, open_run):
    prefill, decode = await _pool(start_service)
    reader, writer = await open_run(prefill.address), await open_run(decode.address)
    sampling = common_pb2.SamplingParams(seed=5, temperature=1)
    for choice in (0, 1):
        await writer.start(
            stream_id=choice,
            choice=choice,
            prompt_token_ids=PROMPT,
            sampling=sampling,
            prepare=Prepare(),
        )
    await reader.start(
        stream_id=9, prompt_token_ids=PROMPT, sampling=sampling, prefill=Prefill(n=2)
    )
    await reader.ended(9)
    for choice in (0, 1):
        await writer.generate(choice, reader.tokens[9][choice])
    await writer.ended(0, 1)
    for choice in (0, 1):
        expected = local_tokens(prompt_token_ids=PROMPT, sampling=sampling, choice=choice)
        assert reader.tokens[9][choice] + writer.tokens[choice][choice] == expected
    await at_baseline(writer)


async def test_tenants_with_salts_of_their_own_share_no_kv(start_service, open_run):
    _, decode = await _pool(start_service)
    run = await open_run(decode.address)
    for number, salt in ((1, b"one"), (2, b"other"), (3, b"one")):
        await run.start(
            stream_id=number, cache_salt=salt, prompt_token_ids=PROMPT, generate=Generate()
        )
        await run.ended(number)
    found = [run.ends[number].usage.cached_tokens for number in (1, 2, 3)]
    assert found == [0, 0, (len(PROMPT) - 1) // 16 * 16]


async def test_the_next_turn_finds_prompt_and_answer(start_service, open_run):
    _, decode = await _pool(start_service)
    writer = await open_run(decode.address)
    sampling = common_pb2.SamplingParams(max_tokens=40)
    await writer.start(stream_id=1, prompt_token_ids=PROMPT, sampling=sampling, generate=Generate())
    await writer.ended(1)
    before = (await at_baseline(writer)).computed_tokens

    turn = PROMPT + writer.tokens[1][0] + [7, 8, 9]
    await writer.start(stream_id=2, prompt_token_ids=turn, generate=Generate())
    await writer.ended(2)
    # All full blocks of prompt and answer; the answer's last token was never computed.
    found = (len(PROMPT) + 39) // 16 * 16
    assert writer.ends[2].usage.cached_tokens == found
    after = (await at_baseline(writer)).computed_tokens
    assert after - before == len(turn) - found + 7


@pytest.mark.parametrize("victim", ["prepared", "queued", "decoding"])
async def test_cancelling_gives_everything_back(start_service, open_run, victim):
    slow = {"engine.sim_decode_step_seconds": 0.02, "engine.max_running": 2}
    _, decode = await _pool(start_service, slow)
    writer = await open_run(decode.address)
    sampling = common_pb2.SamplingParams(max_tokens=60)
    for i in range(3):
        await writer.start(
            stream_id=i, prompt_token_ids=[i, *PROMPT], sampling=sampling, generate=Generate()
        )
    await writer.start(stream_id=3, prompt_token_ids=[3, *PROMPT], prepare=Prepare())
    await writer.until(lambda: len(writer.tokens[0][0]) > 3)
    cancelled = {"prepared": 3, "queued": 2, "decoding": 1}[victim]
    await writer.cancel(cancelled)
    await writer.ended(cancelled)
    end = writer.ends[cancelled]
    assert isinstance(end, StreamFailed)
    assert BatonError.from_status(end.status).reason is Reason.CANCELLED
    if victim != "prepared":
        await writer.cancel(3)
    await writer.ended(0, 1, 2, 3)
    for i in {0, 1, 2} - {cancelled}:
        assert isinstance(writer.ends[i], StreamFinished)
        expected = local_tokens(prompt_token_ids=[i, *PROMPT], sampling=sampling)
        assert writer.tokens[i][0] == expected
    await at_baseline(writer)


async def test_a_paused_stream_waits_and_its_neighbours_do_not(start_service, open_run):
    slow = {"engine.sim_decode_step_seconds": 0.005, "engine.max_running": 2}
    worker = await start_service("combined", {**ALONE, **slow})
    assert PAUSE in worker.instance.features
    run = await open_run(worker.address)
    sampling = common_pb2.SamplingParams(max_tokens=100)
    prompts = [[i, *PROMPT] for i in range(5)]
    expected = [local_tokens(prompt_token_ids=each, sampling=sampling) for each in prompts]
    for i in (0, 1):
        await run.pause(i)  # of no stream yet
        await run.start(
            stream_id=i, prompt_token_ids=prompts[i], sampling=sampling, generate=Generate()
        )
        await run.until(lambda i=i: bool(run.tokens[i][0]))
        await run.pause(i)
    await eventually(lambda: _paused(run, 2))
    # Two that are paused leave both places of the batch to others.
    for i in (2, 3, 4):
        await run.start(
            stream_id=i, prompt_token_ids=prompts[i], sampling=sampling, generate=Generate()
        )
    await run.ended(2, 3, 4)
    assert [run.tokens[i][0] for i in (2, 3, 4)] == expected[2:]
    assert all(0 < len(run.tokens[i][0]) < 100 for i in (0, 1))
    await run.cancel(1)
    await run.ended(1)
    await run.resume(0)
    await run.ended(0)
    assert run.tokens[0][0] == expected[0]
    await at_baseline(run)


async def _paused(run, count):
    load = await run.load()
    return load.paused == load.streams == count and load.running == 0


@pytest.mark.serial
async def test_a_frontend_that_vanishes_takes_its_work_along(start_service, open_run):
    _, decode = await _pool(start_service, {"engine.sim_decode_step_seconds": 0.05})
    gone, watcher = await open_run(decode.address), await open_run(decode.address)
    sampling = common_pb2.SamplingParams(max_tokens=500)
    for i in range(8):
        await gone.start(
            stream_id=i, prompt_token_ids=[i, *PROMPT], sampling=sampling, generate=Generate()
        )
    await gone.until(lambda: all(gone.tokens[i][0] for i in range(8)))
    assert (await watcher.load()).streams == 8
    await gone.aclose()
    await at_baseline(watcher, seconds=1)


async def test_frontends_that_vanish_amid_a_write_leave_nothing(start_service, open_run):
    # gRPC may leave a handler in a write for ever when its client goes at that moment.
    decode = await start_service("decode", {**ALONE, "engine.sim_decode_step_seconds": 0.002})
    watcher = await open_run(decode.address)
    sampling = common_pb2.SamplingParams(max_tokens=3000)
    for _ in range(40):
        gone = await open_run(decode.address)
        for i in range(8):
            await gone.start(
                stream_id=i, prompt_token_ids=[i, *PROMPT], sampling=sampling, generate=Generate()
            )
        await gone.until(lambda gone=gone: all(gone.tokens[i][0] for i in range(8)))
        await gone.aclose()
        await at_baseline(watcher)


async def test_another_prefill_worker_fulfils_the_same_wait(
    start_service, spawn_service, open_run, tmp_path
):
    _, decode = await _pool(start_service)
    slow = {**SIM, "store.arena_dir": tmp_path, "engine.sim_prefill_tokens_per_second": 100}
    first = await spawn_service("prefill", environment(slow), instance_id="slow")
    second = await start_service("prefill", SIM)
    reader, writer = await open_run(first.address), await open_run(decode.address)
    await writer.start(stream_id=1, prompt_token_ids=PROMPT, prepare=Prepare())
    await reader.start(stream_id=1, prompt_token_ids=PROMPT, prefill=Prefill(n=1))
    store = start_service.services[0].address

    async def first_chunk_is_there() -> bool:
        return (await stat_at(store)).objects > 0

    await eventually(first_chunk_is_there)
    first.kill()  # three chunks, of 0.64 s each, before its end
    assert 1 not in writer.prepared

    reader = await open_run(second.address)
    await reader.start(stream_id=1, prompt_token_ids=PROMPT, prefill=Prefill(n=1))
    await reader.until(lambda: reader.tokens[1][0])
    await writer.generate(1, reader.tokens[1][0])
    await writer.ended(1)
    assert reader.tokens[1][0] + writer.tokens[1][0] == local_tokens(prompt_token_ids=PROMPT)
    assert writer.prepared[1].ready_tokens == len(PROMPT)
    # What the first one had committed was not computed again.
    assert (await at_baseline(reader)).computed_tokens < len(PROMPT)


async def test_without_its_store_a_decode_worker_computes_for_itself(
    start_service, spawn_service, open_run, tmp_path
):
    settings = {**SIM, "store.arena_dir": tmp_path}
    store = await spawn_service("kvstore", environment(settings), instance_id="store")
    decode = await start_service("decode", SIM)
    writer = await open_run(decode.address)
    store.kill()
    await writer.start(stream_id=1, prompt_token_ids=PROMPT, prepare=Prepare())
    expected = local_tokens(prompt_token_ids=PROMPT)
    await writer.generate(1, expected[:1])
    await writer.ended(1)
    assert writer.tokens[1][0] == expected[1:]
    await at_baseline(writer)


async def test_work_that_is_late_amid_a_chunk_harms_nobody(start_service, open_run):
    slow = {"engine.sim_prefill_tokens_per_second": 320}  # 0.2 s per chunk of 4 blocks
    _, decode = await _pool(start_service, slow)
    writer = await open_run(decode.address)
    late = Duration(nanos=300_000_000)
    await writer.start(stream_id=1, prompt_token_ids=PROMPT, timeout=late, generate=Generate())
    await writer.ended(1)
    assert BatonError.from_status(writer.ends[1].status).reason is Reason.DEADLINE
    await at_baseline(writer)
    # The blocks of that chunk were ready after the sequence had been given up.
    await writer.start(stream_id=2, prompt_token_ids=PROMPT[:20], generate=Generate())
    await writer.ended(2)
    assert writer.tokens[2][0] == local_tokens(prompt_token_ids=PROMPT[:20])


@pytest.mark.parametrize("version", [VERSION - 1, VERSION])
async def test_a_worker_that_stops_hands_over_what_runs(start_service, open_run, version):
    """A frontend that does not know of that keeps its streams to their ends."""
    _, decode = await _pool(start_service, {"engine.sim_decode_step_seconds": 0.03})
    writer = await open_run(decode.address, version)
    sampling = common_pb2.SamplingParams(max_tokens=40)
    work = {"prompt_token_ids": PROMPT, "sampling": sampling}
    await writer.start(stream_id=1, **work, generate=Generate())
    await writer.start(stream_id=2, **work, prepare=Prepare())
    await writer.until(lambda: len(writer.tokens[1][0]) > 20)
    watcher = await open_run(decode.address)
    stopping_worker = asyncio.create_task(decode.stop())

    async def draining() -> bool:
        return (await watcher.load()).draining

    if version == VERSION:
        await writer.ended(1, 2)
        left = writer.ends[1]
        assert isinstance(left, StreamHandedOver)
        assert left.position == len(writer.tokens[1][0]) < 40
        assert isinstance(writer.ends[2], StreamHandedOver)
        assert await stopping_worker == 0
        # The next one computes what was in no full block, and the last token.
        other = await start_service("decode", SIM)
        reader = await open_run(other.address)
        so_far = Generate(output_so_far=writer.tokens[1][0])
        await reader.start(stream_id=1, **work, generate=so_far)
        await reader.ended(1)
        expected = local_tokens(**work)
        assert writer.tokens[1][0] + reader.tokens[1][0] == expected
        blocks = (len(PROMPT) + left.position - 1) // 16
        assert reader.prepared[1].ready_tokens == 16 * blocks
    else:
        await eventually(draining)
        await writer.start(stream_id=3, prompt_token_ids=PROMPT, generate=Generate())
        await writer.ended(1, 3)
        assert BatonError.from_status(writer.ends[3].status).reason is Reason.DRAINING
        so_far = Generate(output_so_far=[5, 6])
        await watcher.start(stream_id=4, prompt_token_ids=PROMPT, generate=so_far)
        await watcher.ended(4)
        assert watcher.ends[4] == StreamHandedOver(stream_id=4, position=2)
        assert len(writer.tokens[1][0]) == 40
        assert 2 not in writer.ends
        await writer.cancel(2)
        assert await stopping_worker == 0


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"prompt_token_ids": []}, Reason.INVALID_FIELD, "prompt_token_ids"),
        ({"prompt_token_ids": [1, 32_000]}, Reason.INVALID_FIELD, "prompt_token_ids"),
        ({"prompt_token_ids": [-1]}, Reason.INVALID_FIELD, "prompt_token_ids"),
        (
            {"sampling": common_pb2.SamplingParams(max_tokens=1_000_000)},
            Reason.CONTEXT_LENGTH_EXCEEDED,
            "max_tokens",
        ),
        (
            {"sampling": common_pb2.SamplingParams(max_tokens=0)},
            Reason.INVALID_FIELD,
            "max_tokens",
        ),
        ({"generate": None, "prefill": Prefill(n=129)}, Reason.INVALID_FIELD, "n"),
        ({"generate": None}, Reason.INVALID_FIELD, "work"),
        (
            {"context": common_pb2.RequestContext(model="other")},
            Reason.MODEL_NOT_FOUND,
            "model",
        ),
    ],
)
async def test_a_frame_out_of_range_is_refused_and_harms_nobody(
    worker_alone, open_run, fields, reason, field
):
    run = await open_run(worker_alone.address)
    merged = {"stream_id": 1, "prompt_token_ids": [1], "generate": Generate(), **fields}
    await run.start(**{k: v for k, v in merged.items() if v is not None})
    await run.ended(1)
    error = BatonError.from_status(run.ends[1].status)
    assert (error.reason, error.field) == (reason, field)
    await run.start(stream_id=2, prompt_token_ids=[1], generate=Generate())
    await run.ended(2)
    assert isinstance(run.ends[2], StreamFinished)


@pytest.fixture
async def worker_alone(start_service):
    return await start_service("decode", ALONE)


async def test_suspect_work_begins_one_after_another_over_all_frontends(start_service, open_run):
    slow = {**ALONE, "engine.sim_decode_step_seconds": 0.05}
    worker = await start_service("combined", slow)
    runs = [await open_run(worker.address) for _ in range(2)]
    some = {"prompt_token_ids": PROMPT, "generate": Generate()}
    await runs[0].start(stream_id=9, **some)
    for number in range(6):
        run = runs[number % 2]
        await run.start(stream_id=number, suspect=True, **some)
        await run.until(lambda run=run, number=number: number in run.begun)
        if number:
            before = runs[(number - 1) % 2]
            await before.start(stream_id=100 + number)  # refused behind what was said until now
            await before.ended(100 + number)
            assert len(before.tokens[number - 1][0]) >= 2, "the one before is not proven"
    await asyncio.gather(runs[0].ended(0, 2, 4, 9), runs[1].ended(1, 3, 5))
    assert 9 not in runs[0].begun
    expected = local_tokens(prompt_token_ids=PROMPT)
    assert all(runs[number % 2].tokens[number][0] == expected for number in range(6))
    await at_baseline(runs[0])


async def test_suspect_work_begins_once_its_frontend_has_acknowledged_it(
    worker_alone, open_run, monkeypatch
):
    monkeypatch.setattr(probation, "ACKNOWLEDGE_SECONDS", 3600)
    run = await open_run(worker_alone.address)
    some = {"prompt_token_ids": PROMPT, "suspect": True, "acknowledges_begun": True}
    for number in (1, 2):
        await run.start(stream_id=number, **some, generate=Generate())
        await run.until(lambda number=number: run.begun[-1:] == [number])
        await run.start(stream_id=100 + number)  # refused behind what was said until now
        await run.ended(100 + number)
        assert not run.tokens.get(number)
        await run.acknowledge(number)
        await run.ended(number)
        assert run.tokens[number][0] == local_tokens(prompt_token_ids=PROMPT)
    await at_baseline(run)


async def test_a_frontend_that_does_not_acknowledge_keeps_no_other_waiting(
    worker_alone, open_run, monkeypatch
):
    monkeypatch.setattr(probation, "ACKNOWLEDGE_SECONDS", 0.05)
    run = await open_run(worker_alone.address)
    some = {"prompt_token_ids": PROMPT, "suspect": True, "acknowledges_begun": True}
    for number in (1, 2):
        await run.start(stream_id=number, **some, generate=Generate())
    await run.ended(1, 2)
    assert run.begun == [1, 2]
    await at_baseline(run)


async def test_suspect_work_that_is_cancelled_lets_the_next_begin(start_service, open_run):
    slow = {**ALONE, "engine.sim_prefill_tokens_per_second": 20.0}
    worker = await start_service("combined", slow)
    run = await open_run(worker.address)
    for number in range(3):
        await run.start(
            stream_id=number, suspect=True, prompt_token_ids=PROMPT[: 20 + number],
            prefill=Prefill(n=1),
        )  # fmt: skip
    await run.until(lambda: run.begun == [0])
    await run.cancel(1)
    await run.ended(1)
    await run.cancel(0)
    await run.until(lambda: run.begun == [0, 2])
    await run.ended(0, 2)
    await at_baseline(run)
