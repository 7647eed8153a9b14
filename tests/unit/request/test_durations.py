"""How durations are written."""

import pytest

from baton.request.durations import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0004, "0.4 ms"),
        (0.00999, "10 ms"),
        (0.012, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (1.25, "1.25 s"),
        (9.996, "10.0 s"),
        (12.46, "12.5 s"),
        (99.96, "100 s"),
        (1250.4, "1,250 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
