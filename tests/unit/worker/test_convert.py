"""What a frontend may ask of a worker: a frame that no engine can compute with is refused."""

import math
from dataclasses import replace
from hashlib import sha256

import pytest

from baton.engine.base import EngineInfo, QueueFullError, UnsupportedFeatureError
from baton.engine.factory import create_engine
from baton.engine.pictures import PictureTokens
from baton.errors import BatonError, Reason
from baton.internal.v1.worker_pb2 import Generate, Picture, Start, WorkOrder
from baton.kv.keys import PlaceholderRun
from baton.request.grammar import Grammar
from baton.settings import EngineSettings
from baton.v1 import common_pb2
from baton.v1.common_pb2 import RequestContext, SamplingParams
from baton.worker.convert import refused, sequence_request, work_order


@pytest.fixture(scope="module")
def info() -> EngineInfo:
    return create_engine(EngineSettings(kind="sim", sim_time_scale=0)).info


def _start(**fields: object) -> Start:
    given = {"prompt_token_ids": [1], "generate": Generate()} | fields
    start = Start(**given)  # type: ignore[arg-type]
    start.sampling.max_tokens = 4
    return start


def test_what_is_expected_to_be_found_reaches_the_engine(info: EngineInfo) -> None:
    assert sequence_request(_start(), 1, b"root", info).expected_cached_tokens == 0
    asked = _start(expected_cached_tokens=7)
    assert sequence_request(asked, 1, b"root", info).expected_cached_tokens == 7
    with pytest.raises(BatonError) as caught:
        sequence_request(_start(expected_cached_tokens=-1), 1, b"root", info)
    assert caught.value.field == "expected_cached_tokens"


@pytest.mark.parametrize("choice", [-1, 128])
def test_a_choice_out_of_range_is_refused(info: EngineInfo, choice: int) -> None:
    with pytest.raises(BatonError) as caught:
        sequence_request(_start(choice=choice), 1, b"root", info)
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, "choice")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", -0.1),
        ("top_p", math.nan),
        ("top_k", -1),
        ("min_p", 1.5),
        ("presence_penalty", math.inf),
        ("frequency_penalty", math.nan),
        ("repetition_penalty", 0.0),
        ("logprobs", -1),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {32_000: 1.0}),
        ("logit_bias", {-1: 1.0}),
    ],
)
def test_sampling_that_no_engine_can_compute_is_refused(
    info: EngineInfo, field: str, value: object
) -> None:
    params = SamplingParams(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(BatonError) as caught:
        sequence_request(_start(sampling=params), 1, b"root", info)
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, field)


def test_the_edges_of_every_range_are_taken(info: EngineInfo) -> None:
    for params in (
        SamplingParams(temperature=0, top_p=1e-300, min_p=1, repetition_penalty=1e-300, logprobs=0),
        SamplingParams(temperature=1e-300, top_p=1, top_k=2**31 - 1, logit_bias={31_999: -100}),
    ):
        request = sequence_request(_start(choice=15, sampling=params), 1, b"root", info)
        assert request.choices == (15,)


def test_what_an_engine_needs_to_know_of_a_request_reaches_it(info: EngineInfo) -> None:
    context = RequestContext(adapter="poet", priority=common_pb2.PRIORITY_CLASS_PREMIUM)
    grammar = Grammar.of("regex", "[a-z]*")
    start = _start(context=context, sampling=SamplingParams(grammar=grammar.to_proto()))
    request = sequence_request(start, 1, b"root", info, adapter="poet@1")
    assert request.adapter == "poet@1"
    assert request.sampling.grammar == grammar
    plain = sequence_request(_start(), 1, b"root", info)
    assert (plain.adapter, plain.sampling.grammar) == ("", None)


def test_work_goes_by_its_router_s_order_or_else_by_class_and_seconds(info: EngineInfo) -> None:
    order = WorkOrder(tier=1, priority_class=2, tenant_lead=3.5, key=-4.5, step_seconds=0.05)
    given = work_order(_start(order=order), 1000.0, 0.0)
    assert given == (1, 2, 3.5, -4.5)
    request = sequence_request(_start(order=order), 1, b"root", info, given)
    assert (request.order, request.step_seconds) == (given, 0.05)
    prompt = list(range(1000))
    long, later, short, batch = (
        work_order(_start(prompt_token_ids=prompt, **fields), 100.0, now)
        for fields, now in (
            ({}, 0.0),
            ({}, 60.0),
            ({"expected_cached_tokens": 950}, 100.0),
            ({"context": RequestContext(priority=common_pb2.PRIORITY_CLASS_BATCH)}, 0.0),
        )
    )
    assert short < long < later < batch, "a class comes before seconds, and seconds before time"
    assert long == (0, 1, 0.0, 10.0)
    unknown = [work_order(_start(prompt_token_ids=prompt), 0.0, now) for now in (1.0, 2.0)]
    assert unknown == sorted(unknown), "first come, first served while no rate is known"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tier", -1),
        ("priority_class", -1),
        ("tenant_lead", -1.0),
        ("tenant_lead", float("nan")),
        ("step_seconds", -1.0),
        ("step_seconds", float("inf")),
        ("key", float("inf")),
        ("key", float("nan")),
    ],
)
def test_an_order_that_is_none_is_refused(field: str, value: float) -> None:
    order = WorkOrder(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(BatonError) as caught:
        work_order(_start(order=order), 1.0, 0.0)
    assert caught.value.field == f"order.{field}"


@pytest.mark.parametrize(
    ("error", "reason", "field"),
    [
        (QueueFullError("full"), Reason.OVERLOADED, None),
        (UnsupportedFeatureError("adapters"), Reason.UNSUPPORTED_PARAMETER, "adapter"),
        (UnsupportedFeatureError("grammar"), Reason.UNSUPPORTED_PARAMETER, "grammar"),
        (ValueError("the prompt is too long"), Reason.NO_CAPACITY, None),
    ],
)
def test_a_refusal_of_the_engine_says_what_is_wrong(
    error: QueueFullError | ValueError, reason: Reason, field: str | None
) -> None:
    told = refused(error)
    assert (told.reason, told.field) == (reason, field)
    feature = getattr(error, "feature", "")
    assert feature in told.message


PICTURE_TOKENS = PictureTokens(9, (8, 9, 9))


def test_pictures_stand_where_their_tokens_do(info: EngineInfo) -> None:
    seeing = replace(info, pictures=PICTURE_TOKENS)
    prompt = [1, 8, 9, 9, 8, 9, 9, 2]
    pictures = [Picture(offset=1, data=b"a"), Picture(offset=4, data=b"b")]
    request = sequence_request(
        _start(prompt_token_ids=prompt, pictures=pictures), 1, b"root", seeing
    )
    assert request.runs == (
        PlaceholderRun(1, 3, sha256(b"a").digest()),
        PlaceholderRun(4, 3, sha256(b"b").digest()),
    )


@pytest.mark.parametrize("offsets", [[0], [2], [-1], [6], [4, 1], [1, 1]])
def test_pictures_that_stand_elsewhere_are_refused(info: EngineInfo, offsets: list[int]) -> None:
    seeing = replace(info, pictures=PICTURE_TOKENS)
    pictures = [Picture(offset=offset, data=b"a") for offset in offsets]
    start = _start(prompt_token_ids=[1, 8, 9, 9, 8, 9, 9, 2], pictures=pictures)
    with pytest.raises(BatonError, match="pictures") as caught:
        sequence_request(start, 1, b"root", seeing)
    assert caught.value.reason is Reason.INVALID_FIELD


def test_an_engine_without_pictures_refuses_them(info: EngineInfo) -> None:
    start = _start(pictures=[Picture(offset=0, data=b"a")])
    with pytest.raises(BatonError, match="not supported by this worker") as caught:
        sequence_request(start, 1, b"root", info)
    assert caught.value.field == "pictures"
