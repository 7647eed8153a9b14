"""What a cluster that stops says it waits for."""

import pytest

from baton.cli.cluster.local.output.running_requests import waiting_sentence


@pytest.mark.parametrize(
    ("running", "said"),
    [
        ({}, "No requests are running: stopping now."),
        ({"frontend-0": 0}, "No requests are running: stopping now."),
        (
            {"frontend-0": 1, "frontend-1": 0},
            "Waiting up to 7.5 s for 1 request to finish on frontend-0. Press Ctrl-C again to "
            "kill.",
        ),
        (
            {"frontend-1": 1, "frontend-0": 12},
            "Waiting up to 7.5 s for 13 requests to finish (12 on frontend-0, 1 on frontend-1). "
            "Press Ctrl-C again to kill.",
        ),
    ],
)
def test_requests_are_counted_by_frontend(running: dict[str, int], said: str) -> None:
    assert waiting_sentence(running, 7.5) == said
