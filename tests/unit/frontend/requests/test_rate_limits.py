"""`x-ratelimit-*` as OpenAI writes them."""

import pytest

from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.spec import Subject, SubjectLimits
from services.frontend.requests.rate_limits import duration, rate_limits


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0ms"),
        (0.0201, "21ms"),
        (0.9999, "1s"),
        (1.0, "1s"),
        (1.5, "1.5s"),
        (59.9999, "1m0s"),
        (360.0, "6m0s"),
        (61.25, "1m1.25s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_is_limited_is_told_and_nothing_else() -> None:
    limiter = Limiter()
    key = SubjectLimits(Subject.KEY, "key_1", requests_per_minute=60)
    once = SubjectLimits(Subject.TENANT, "acme", requests_at_once=3)
    found = dict(rate_limits(limiter.limit_set([key, once]), 1e6))
    assert found == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "60",
        "x-ratelimit-reset-requests": "0ms",
    }
