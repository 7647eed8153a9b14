"""Which requests are kept: by targets where there are any, else by what was predicted."""

from typing import Any

import pytest

from baton.history.kept import KeptKind
from baton.history.rule import kind_of
from tests.support.usage.records import begun, ended


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, None),
        ({"outcome": "WORKER_LOST"}, KeptKind.FAILED),
        ({"outcome": "CANCELLED"}, None),
        ({"outcome": "CANCELLED", "first_token_seconds": None, "seconds": 9.0}, KeptKind.SLOW),
        ({"first_token_seconds": 2.1}, KeptKind.SLOW),
        ({"first_token_seconds": 2.1, "predicted_prefill_seconds": 0.2}, None),
        ({"first_token_seconds": 2.7, "predicted_prefill_seconds": 0.2}, KeptKind.SLOW),
        # Queues are not expected, even where they were predicted.
        ({"first_token_seconds": 2.1, "predicted_queue_seconds": 9.0}, KeptKind.SLOW),
        ({"first_token_seconds": 2.1, "target_first_token_seconds": 3.0}, None),
        ({"first_token_seconds": 0.5, "target_first_token_seconds": 0.4}, KeptKind.SLOW),
        ({"seconds": 9.5}, None),  # nothing is known of its pace
        ({"seconds": 1.29, "predicted_token_seconds": 0.02}, None),
        ({"seconds": 1.31, "predicted_token_seconds": 0.02}, KeptKind.SLOW),
        ({"seconds": 1.31, "target_token_seconds": 0.1}, None),
        ({"seconds": 1.6, "target_token_seconds": 0.1}, KeptKind.SLOW),
        # Of two choices each had half of the tokens.
        (
            {"seconds": 1.3, "target_token_seconds": 0.1, "finish_reasons": ("stop", "stop")},
            KeptKind.SLOW,
        ),
    ],
)
def test_what_is_kept(fields: dict[str, Any], kind: KeptKind | None) -> None:
    record = ended(begun(), **fields)
    assert kind_of(record, sampled=False) == kind
    assert kind_of(record, sampled=True) == (kind or KeptKind.SAMPLED)
