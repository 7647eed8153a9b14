"""Completion windows of batches, as operators write them."""

import pytest
from pydantic import ValidationError

from baton.settings import BatchSettings


def test_windows_are_numbers_with_a_unit() -> None:
    assert BatchSettings().windows == {"24h": 86_400}
    found = BatchSettings(completion_windows="90s, 30m,24h").windows
    assert found == {"90s": 90, "30m": 1800, "24h": 86_400}


@pytest.mark.parametrize("windows", ["", " , ", "24", "0h", "169h", "1d", "1.5h", "-1h", "24h;1h"])
def test_other_windows_are_refused(windows: str) -> None:
    with pytest.raises(ValidationError, match="window"):
        BatchSettings(completion_windows=windows)
