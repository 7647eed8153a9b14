"""What a stream fetches depends on its work, on what the engine has, and on the block's size."""

import pytest

from baton.engine.base import SequenceRequest
from baton.engine.events import Admitted
from baton.internal.v1.kvstore_pb2 import KvSource
from baton.internal.v1.worker_pb2 import Generate, Prefill, Prepare, Start
from baton.sampling import SamplingParams
from baton.worker.kv.fetch_plan import plan_fetch

SOURCES = [KvSource(store_id="peer")]
KEYS = tuple(bytes([number]) * 16 for number in range(5))

KV_WAIT_SECONDS = 60.0


def plan(cached_tokens: int = 0, output: tuple[int, ...] = (), **work: object):
    """A prompt of 40 tokens in blocks of 16: two full ones and a partial one."""
    request = SequenceRequest(1, b"root", [7] * 40, SamplingParams(), output=output)
    blocks = -(-(40 + len(output)) // 16)
    start = Start(**work)  # type: ignore[arg-type]
    return plan_fetch(
        start, request, Admitted(1, cached_tokens, KEYS[:blocks]), 16, KV_WAIT_SECONDS
    )


def test_a_stream_that_prepares_waits_for_every_block_the_partial_one_too() -> None:
    planned = plan(prepare=Prepare(sources=SOURCES))
    assert planned.keys == KEYS[:3]
    assert planned.wait_seconds == KV_WAIT_SECONDS
    assert list(planned.sources) == SOURCES


@pytest.mark.parametrize(
    "work", [{"prefill": Prefill(sources=SOURCES)}, {"generate": Generate(sources=SOURCES)}]
)
def test_what_computes_anyway_takes_full_blocks_that_are_there(work: dict[str, object]) -> None:
    planned = plan(**work)
    assert planned.keys == KEYS[:2]
    assert planned.wait_seconds == 0
    assert list(planned.sources) == SOURCES


def test_what_the_engine_has_is_not_fetched() -> None:
    assert plan(cached_tokens=16, generate=Generate()).keys == KEYS[1:2]
    assert plan(cached_tokens=32, generate=Generate()).keys == ()
    assert plan(cached_tokens=32, prepare=Prepare()).keys == KEYS[2:3]


def test_a_moved_stream_fetches_blocks_of_its_output() -> None:
    output = (5,) * 24  # four full blocks with the prompt
    assert plan(output=output, generate=Generate()).keys == KEYS[:4]


def test_only_blocks_of_the_prompt_are_waited_for() -> None:
    planned = plan(output=(5,) * 24, generate=Generate(wait_for_kv=True))
    assert planned.keys == KEYS[:2]
    assert planned.wait_seconds == KV_WAIT_SECONDS
