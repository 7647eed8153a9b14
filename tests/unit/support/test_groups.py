"""Tests that share something costly run on one worker."""

import pytest


@pytest.mark.xdist_group("some")
def test_a_group_is_in_the_id_by_which_tests_are_sent_to_workers(
    request: pytest.FixtureRequest,
) -> None:
    grouped = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@some") is grouped
