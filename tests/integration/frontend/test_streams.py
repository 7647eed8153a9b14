"""What clients of the gRPC service see when everybody works."""

import asyncio
import re
from typing import Any

from baton.v1 import common_pb2, inference_pb2
from tests.support.wait import eventually

PROMPT = "a prompt of some forty characters, in bytes."


def generate(stage: Any, **fields: Any) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text=PROMPT, **fields)
    request.context.model = stage.model
    if not request.sampling.HasField("max_tokens"):
        request.sampling.max_tokens = 12
    return request


def texts(events: list[Any], n: int = 1) -> list[str]:
    """The text of each choice; fails if a position is missing or comes twice."""
    found, at = [""] * n, [0] * n
    for event in events:
        if event.HasField("delta"):
            delta = event.delta
            assert delta.position == at[delta.choice]
            at[delta.choice] += len(delta.token_ids)
            found[delta.choice] += delta.text
    return found


async def test_tokens_flow_from_prefill_and_then_from_decode(stage: Any) -> None:
    events = [event async for event in stage.stub().Generate(generate(stage))]
    assert texts(events) == [stage.said(0, 12)]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "started"
    assert kinds[-2:] == ["choice_finished", "finished"]
    assert events[0].started.prompt_tokens == len(PROMPT)
    assert events[-2].choice_finished.reason == common_pb2.FINISH_REASON_LENGTH
    assert stage.worker("p0").kinds() == ["prefill"]
    assert stage.worker("d0").kinds() == ["prepare", "generate"]
    start = stage.worker("d0").starts()[0]
    assert start.ticket == stage.worker("p0").starts()[0].ticket != ""
    assert list(start.prepare.sources) == list(stage.place("d0", "p0").sources)
    assert stage.worker("p0").starts()[0].expected_cached_tokens == 16
    assert start.expected_cached_tokens == len(PROMPT)  # all of it comes from p0
    await stage.quiet()


async def test_workers_of_the_version_before_are_understood(stage: Any) -> None:
    for name in ("p0", "d0"):
        stage.worker(name).hello.protocol_version -= 1
    request = generate(stage, n=2)
    events = [event async for event in stage.stub().Generate(request)]
    assert texts(events, 2) == [stage.said(0, 12), stage.said(1, 12)]
    await stage.quiet()


async def test_finished_tells_usage_and_steps(stage: Any) -> None:
    events = [event async for event in stage.stub().Generate(generate(stage))]
    finished = events[-1].finished
    assert finished.usage.prompt_tokens == len(PROMPT)
    assert finished.usage.cached_tokens == 32
    assert finished.usage.output_tokens == 12
    steps = {step.name: step for step in finished.steps}
    # Prefill and transfer begin in one moment, each by its worker's own account.
    assert list(steps) in (
        ["route", "prefill", "transfer", "decode"],
        ["route", "transfer", "prefill", "decode"],
    )
    instances = {name: step.instance for name, step in steps.items()}
    assert instances == {"route": "router", "prefill": "p0", "transfer": "d0", "decode": "d0"}
    assert steps["route"].cached_tokens == 16
    assert steps["prefill"].cached_tokens == 32
    assert steps["transfer"].bytes == 4096
    # Whether KV is there before the first token is a race.
    complete = r"shm(, complete \d+ ms after the first token)?"
    assert re.fullmatch(complete, steps["transfer"].detail)
    assert steps["decode"].tokens == 11
    assert steps["decode"].duration_seconds > 0.005


async def test_the_first_token_does_not_wait_for_the_rest_of_prefill(stage: Any) -> None:
    stage.worker("p0").script.committed.clear()
    stage.worker("d0").script.step_seconds = 10.0
    call = stage.stub().Generate(generate(stage))
    assert (await call.read()).HasField("started")
    assert (await call.read()).delta.text == stage.said(0, 1)
    call.cancel()
    await stage.quiet()


async def test_two_choices_are_told_apart(stage: Any) -> None:
    events = [event async for event in stage.stub().Generate(generate(stage, n=2))]
    assert texts(events, 2) == [stage.said(0, 12), stage.said(1, 12)]
    assert stage.worker("p0").kinds() == ["prefill"]
    assert sorted(stage.worker("d0").kinds()) == ["generate"] * 2 + ["prepare"] * 2
    assert sum(event.HasField("choice_finished") for event in events) == 2
    await stage.quiet()


async def test_one_token_needs_no_decoding(stage: Any) -> None:
    sampling = common_pb2.SamplingParams(max_tokens=1)
    events = [event async for event in stage.stub().Generate(generate(stage, sampling=sampling))]
    assert texts(events) == [stage.said(0, 1)]
    await eventually(lambda: stage.worker("d0").kinds() == ["prepare", "cancel"])
    await stage.quiet()


async def test_a_decode_worker_reads_the_prompt_itself_when_it_is_placed_so(stage: Any) -> None:
    stage.router.place = lambda query: stage.place("d1")
    events = [event async for event in stage.stub().Generate(generate(stage))]
    assert texts(events) == [stage.said(0, 12)]
    assert stage.worker("d1").kinds() == ["generate"]
    assert not stage.worker("d1").starts()[0].generate.wait_for_kv
    assert stage.worker("d1").starts()[0].expected_cached_tokens == 16
    assert events[-1].finished.usage.cached_tokens == 32
    assert [step.name for step in events[-1].finished.steps] == ["route", "prefill", "decode"]


async def test_end_of_sequence_ends_a_choice_and_is_no_text(stage: Any) -> None:
    stage.worker("d0").script.eos_after = 4
    events = [event async for event in stage.stub().Generate(generate(stage))]
    assert texts(events) == [stage.said(0, 4)]
    assert events[-2].choice_finished.reason == common_pb2.FINISH_REASON_STOP
    assert events[-1].finished.usage.output_tokens == 5


async def test_a_stop_string_cuts_the_text_and_the_worker(stage: Any) -> None:
    sampling = common_pb2.SamplingParams(max_tokens=100, stop=["ef", "zz"])
    events = [event async for event in stage.stub().Generate(generate(stage, sampling=sampling))]
    assert texts(events) == ["abcd"]
    assert events[-2].choice_finished.reason == common_pb2.FINISH_REASON_STOP
    assert events[-2].choice_finished.stop_string == "ef"
    await eventually(lambda: "cancel" in stage.worker("d0").kinds())
    await stage.quiet()


async def test_a_cut_off_stream_goes_on_where_it_was(stage: Any) -> None:
    first = [event async for event in stage.stub().Generate(generate(stage))]
    known = [letter for event in first for letter in event.delta.token_ids][:5]
    resume = inference_pb2.Resume(output_ids=known, seed=first[0].started.seed)
    events = [event async for event in stage.stub().Generate(generate(stage, resume=resume))]
    deltas = [event.delta for event in events if event.HasField("delta")]
    assert deltas[0].position == 5
    assert "".join(delta.text for delta in deltas) == stage.said(0, 12)[5:]
    assert events[0].started.seed == first[0].started.seed
    assert events[-1].finished.usage.output_tokens == 7
    start = stage.worker("d0").starts()[-1]
    assert list(start.generate.output_so_far) == known
    assert start.sampling.seed == first[0].started.seed


async def test_chat_renders_the_template(stage: Any) -> None:
    request = inference_pb2.ChatRequest(
        messages=[inference_pb2.ChatMessage(role="user", content="hi")]
    )
    request.context.model = stage.model
    request.sampling.max_tokens = 3
    events = [event async for event in stage.stub().Chat(request)]
    assert texts(events) == [stage.said(0, 3)]
    prompt = stage.worker("p0").starts()[0].prompt_token_ids
    rendered = "user:hi\nassistant:"
    assert len(prompt) == events[0].started.prompt_tokens == len(rendered)
    answer = await stage.stub().Tokenize(
        inference_pb2.TokenizeRequest(model=stage.model, messages=request.messages)
    )
    assert list(answer.token_ids) == list(prompt)


async def test_models_are_listed_while_a_worker_serves_them(empty_stage: Any) -> None:
    stage = empty_stage
    member = await stage.add("d9", 4)
    await stage.start_frontend()
    stub = stage.stub()

    async def listed() -> list[str]:
        answer = await stub.ListModels(inference_pb2.ListModelsRequest())
        return [model.name for model in answer.models]

    await _until(stage, listed, [stage.model])
    await member.stack.aclose()
    await _until(stage, listed, [])


async def _until(stage: Any, listed: Any, wanted: list[str]) -> None:
    for _ in range(200):
        if await listed() == wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never {wanted}")


async def test_the_caller_names_the_request(stage: Any) -> None:
    call = stage.stub().Generate(generate(stage), metadata=(("x-request-id", "my-id"),))
    assert (await call.read()).started.request_id == "my-id"
    assert ("x-request-id", "my-id") in list(await call.initial_metadata())
    assert stage.router.queries[0].context.request_id == "my-id"
    call.cancel()
    await stage.quiet()
