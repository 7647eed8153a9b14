"""The reason of a placement says what was decided, and why, whatever was decided."""

import pytest

from services.router.policy.costs import PlacementQuery, Policy
from services.router.state.rates import WorkerRates
from services.router.state.worker import Worker
from tests.support.router.placement import make_worker, place

PROMPT = 1024
RATES = WorkerRates(
    prefill_tokens_per_second=1_000,
    decode_step_seconds=0.01,
    remote_bytes_per_second=1e8,
    local_bytes_per_second=1e9,
)


def worker(name: str, **fields: object) -> Worker:
    roles = {"can_prefill": name[0] in "pc", "can_decode": name[0] in "dc"}
    own = {"running": 0, "pending_prompt_tokens": 0, "stale": False, "store_id": "store-a"} | fields
    return make_worker(
        id=name,
        incarnation="1",
        address="127.0.0.1:1",
        layout_id=b"L" * 16,
        block_tokens=16,
        block_bytes=100_000,
        rates=RATES,
        waiting=0,
        free_pages=1000,
        total_pages=1000,
        draining=False,
        **roles,
        **own,
    )


IDLE, BUSY = worker("d1"), worker("d1", running=8, decode_chunk_tokens=512)
ALWAYS, NEVER = Policy(disaggregation="always"), Policy(disaggregation="never")


@pytest.mark.parametrize(
    ("workers", "policy", "output_tokens", "said"),
    [
        (
            [worker("p1"), BUSY],
            Policy(),
            0,
            "p1 computes 1024 of 1024 tokens for d1; "
            "d1 alone would take 1044 ms, not 1027 ms, and raise the inter-token latency of its "
            "streams to 522 ms",
        ),
        (
            [
                worker("p1"),
                worker("d1", pending_prompt_tokens=500, running=8, decode_chunk_tokens=50),
            ],
            Policy(),
            0,
            "p1 computes 1024 of 1024 tokens for d1; "
            "d1 alone would take 1829 ms, not 1027 ms, and raise the inter-token latency of its "
            "streams to 60 ms",
        ),
        (
            [worker("p1", pending_prompt_tokens=5000), IDLE],
            Policy(),
            0,
            "d1 computes 1024 of 1024 tokens itself; prefill on p1 would take 6027 ms, not 1024 ms",
        ),
        (
            [worker("p1"), BUSY],
            ALWAYS,
            0,
            "p1 computes 1024 of 1024 tokens for d1; disaggregation is set to always",
        ),
        (
            [worker("p1"), BUSY],
            NEVER,
            0,
            "d1 computes 1024 of 1024 tokens itself; disaggregation is set to never",
        ),
        (
            [IDLE],
            Policy(),
            0,
            "d1 computes 1024 of 1024 tokens itself; no other worker can prefill",
        ),
        (
            [worker("p1"), BUSY],
            Policy(resume_remote_min_tokens=PROMPT + 1),
            10,
            "d1 computes 1034 of 1034 tokens itself; "
            "the stream resumes with too few tokens left for a handover",
        ),
        (
            [worker("p1", stale=True), BUSY],
            ALWAYS,
            0,
            "d1 computes 1024 of 1024 tokens itself; no prefill worker reports its load",
        ),
        (
            [worker("p1", store_id=""), BUSY],
            ALWAYS,
            0,
            "d1 computes 1024 of 1024 tokens itself; no prefill worker can transfer KV to it",
        ),
    ],
)
def test_the_reason_tells_the_decision_and_what_spoke_for_it(
    workers: list[Worker], policy: Policy, output_tokens: int, said: str
) -> None:
    query = PlacementQuery(prompt_tokens=PROMPT, max_tokens=64, output_tokens=output_tokens)
    assert place(query, workers, policy).reason == said


def test_a_worker_that_is_kept_free_is_not_said_to_be_slower() -> None:
    short = PlacementQuery(prompt_tokens=4, max_tokens=64)
    decision = place(short, [worker("p1"), IDLE])
    assert decision.reason == (
        "p1 computes 4 of 4 tokens for d1; d1 alone would take 4 ms, too, and stays free for decode"
    )
