"""The cause of a slow request is the part that took longest beyond what was expected."""

from typing import Any

import pytest

from baton.history.cause import cause_of, phases_of
from tests.support.usage.records import begun, ended

USUAL: dict[str, Any] = {
    "priority_class": "premium",
    "router": "router-0",
    "prefill_worker": "prefill-1",
    "decode_worker": "decode-2",
    "kv_store": "kvstore-3",
    "router_queue_seconds": 0.0,
    "queue_seconds": 0.01,
    "transfer_seconds": 0.02,
    "prefill_seconds": 0.3,
    "decode_seconds": 1.0,
    "predicted_first_token_seconds": 0.4,
    "predicted_queue_seconds": 0.0,
    "predicted_transfer_seconds": 0.02,
    "predicted_prefill_seconds": 0.3,
    "predicted_token_seconds": 0.1,
    "target_first_token_seconds": 2.0,
}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "Not slow. First token after 500 ms (predicted when it was placed: 400 ms, target"),
        (
            {"router_queue_seconds": 7.5, "first_token_seconds": 8.0},
            "Slow because of router queue: 7.50 s in the queue of router-0, class premium, until a "
            "worker had room; 0 s predicted.",
        ),
        (
            {"queue_seconds": 7.5, "first_token_seconds": 8.0, "predicted_queue_seconds": 1.0},
            "Slow because of worker queue: 7.50 s in the queue of worker prefill-1; 1.00 s "
            "predicted.",
        ),
        (
            {"transfer_seconds": 7.5, "first_token_seconds": 8.0},
            "Slow because of transfer: 7.50 s waiting for KV from store kvstore-3 at worker "
            "prefill-1; 20 ms predicted. First token after 8.00 s",
        ),
        (
            {"prefill_seconds": 17.5, "first_token_seconds": 18.0},
            "Slow because of prefill: 17.5 s computing the prompt on worker prefill-1; 300 ms",
        ),
        (
            {"seconds": 18.5, "decode_seconds": 17.5},
            "Slow because of decode: 17.5 s decoding 5 tokens on worker decode-2; 1.50 s three "
            "times its other streams' pace.",
        ),
        (
            {"seconds": 18.5, "decode_seconds": 17.5, "target_token_seconds": 0.2},
            "1.00 s allowed by its target.",
        ),
        (
            {"moves": 2, "first_token_seconds": 8.0},
            "Slow because of moves: 7.67 s lost in 2 moves to another worker before the first "
            "token",
        ),
        (
            {"outcome": "WORKER_LOST", "first_token_seconds": None, "seconds": 0.1},
            "Ended with WORKER_LOST: it is gone. There was no first token.",
        ),
        ({"outcome": "lost"}, "Its frontend was lost before it ended; only its start is known."),
        (
            {"first_token_seconds": 8.0, "transfer_seconds": 0.0, "queue_seconds": 0.0},
            "Slow, as was predicted: most of it, 1.00 s, decoding 5 tokens on worker decode-2.",
        ),
    ],
)
def test_causes(fields: dict[str, Any], sentence: str) -> None:
    record = ended(begun(), **{**USUAL, **fields})
    assert sentence in cause_of(record, "it is gone")


def test_a_record_of_an_earlier_release_has_a_cause_too() -> None:
    record = ended(begun(), first_token_seconds=9.0, queue_seconds=8.5)
    assert cause_of(record) == (
        "Slow because of worker queue: 8.50 s in the queue of worker an unknown worker; 0 s "
        "predicted. First token after 9.00 s (slow from: 2.00 s)."
    )
    assert [phase.name for phase in phases_of(record)] == [
        "router queue",
        "worker queue",
        "transfer",
        "prefill",
    ]
