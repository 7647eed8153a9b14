"""What `baton route explain` prints of an explanation."""

import io

import pytest
from rich.console import Console

from baton.cli.inspect.route.tables import print_explanation, why_not
from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2

CHOSEN = router_pb2.CandidateCosts(
    decode_worker="d0",
    chosen=True,
    score=0.2,
    queue_seconds=0.1,
    prefill_seconds=0.1,
    engine_tokens=512,
    uncached_tokens=100,
)


def other(**fields: object) -> router_pb2.CandidateCosts:
    made = router_pb2.CandidateCosts()
    made.CopyFrom(CHOSEN)
    made.MergeFrom(router_pb2.CandidateCosts(decode_worker="d1", **fields))  # type: ignore[arg-type]
    made.chosen = False
    return made


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (CHOSEN, ""),
        (other(score=0.2001), "equal; the request id decided"),
        (other(score=0.5, queue_seconds=0.4), "+300.0 ms: queue +300.0"),
        (
            other(score=0.5, prefill_seconds=0.3, transfer_seconds=0.2, batch_seconds=0.01),
            "+300.0 ms: transfer +200.0, prefill +200.0",
        ),
        (other(exclusion="draining"), "is draining"),
        (
            other(exclusion="itl", step_seconds=0.071, itl_limit_seconds=0.045),
            "its inter-token latency would be 71.0 ms; the limit is 45.0 ms",
        ),
        (other(exclusion="itl"), "its streams would exceed the inter-token latency limit"),
        (other(exclusion="of a later release"), "of a later release"),
    ],
)
def test_why_a_candidate_is_not_the_one_is_said_by_its_largest_parts(
    one: router_pb2.CandidateCosts, said: str
) -> None:
    assert why_not(one, CHOSEN) == said


def test_an_explanation_is_some_sentences_and_a_table() -> None:
    explanation = router_pb2.Explanation(
        request_id="abc",
        tenant="acme",
        model="m",
        prompt_tokens=612,
        waited_seconds=1.25,
        reason="d0 computes 100 of 612 tokens itself",
        candidates=[CHOSEN, other(score=0.5, queue_seconds=0.4)],
    )
    explanation.turn.ahead, explanation.turn.waiting, explanation.turn.weight = 3, 12, 2
    explanation.turn.order.tenant_lead = 20_000
    out = io.StringIO()
    print_explanation(Console(file=out), "router-0", explanation)
    text = out.getvalue()
    assert "Request abc: 612 prompt tokens of tenant acme for m, decided by router-0" in text
    assert "3 of 12 queued requests go first." in text
    assert "(weight 2) is 20,000 tokens ahead" in text
    assert "Time in the routers' queues: 1,250 ms." in text
    assert "512 engine" in text
    assert "+300.0 ms: queue +300.0" in text


def test_cuts_are_said_with_what_their_groups_lack() -> None:
    window = router_pb2.GroupLack(kind="window", span_tokens=64, needed_blocks=4, missing_blocks=3)
    full = router_pb2.GroupLack(kind="full", needed_blocks=30)
    cut = router_pb2.HolderCut(
        holder="store-0", tier=2, cut_tokens=320, prefix_tokens=480, groups=[full, window]
    )
    whole = router_pb2.HolderCut(holder="p0", tier=1, cut_tokens=320, prefix_tokens=320)
    out = io.StringIO()
    explanation = router_pb2.Explanation(model="m", cuts=[cut, whole])
    print_explanation(Console(file=out, width=200), "router-0", explanation)
    assert (
        "Prefix at store-0 (store, dram): 320 tokens can be continued; for 480, window 64 lacks 3 "
        "of 4 blocks.\nPrefix at p0 (engine): 320 tokens can be continued.\n"
    ) in out.getvalue()


def test_a_refusal_is_said_with_its_reason() -> None:
    explanation = router_pb2.Explanation(tenant="acme", model="m", prompt_tokens=1)
    explanation.refusal.CopyFrom(BatonError(Reason.OVERLOADED, "the queue is full").to_status())
    out = io.StringIO()
    print_explanation(Console(file=out), "router-0", explanation)
    assert "Now, at router-0: 1 prompt tokens of tenant acme for m." in out.getvalue()
    assert "Rejected, OVERLOADED: the queue is full." in out.getvalue()


def test_a_decode_worker_as_good_as_a_pair_is_kept_free() -> None:
    pair = router_pb2.CandidateCosts(chosen=True, decode_worker="d0", prefill_worker="p0", score=1)
    alone = router_pb2.CandidateCosts(decode_worker="d0", score=1)
    other_pair = router_pb2.CandidateCosts(decode_worker="d1", prefill_worker="p0", score=1)
    assert why_not(alone, pair) == "equal; kept free for decode"
    assert why_not(other_pair, pair) == "equal; the request id decided"
