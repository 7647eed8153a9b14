"""All streams of a request wait, those too that start meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest

from baton.telemetry.scope import TelemetryScope
from services.frontend.generation.assigned.pauses import RequestPauses


@pytest.fixture
def scope() -> Iterator[TelemetryScope]:
    scope = TelemetryScope()
    with scope.entered():
        yield scope


def paused(scope: TelemetryScope) -> float:
    return scope.registry.get_sample_value("baton_frontend_paused_requests") or 0.0


class Stream:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")


def test_streams_that_start_in_a_pause_wait_like_the_others(scope: TelemetryScope) -> None:
    streams: dict[int, Any] = {1: Stream()}
    pauses = RequestPauses(streams)
    pauses.started(streams[1])
    pauses.pause()
    pauses.pause()
    assert paused(scope) == 1
    streams[2] = Stream()
    pauses.started(streams[2])
    pauses.resume()
    pauses.resume()
    assert [streams[number].told for number in (1, 2)] == [["pause", "resume"]] * 2
    assert paused(scope) == 0


def test_a_request_that_ends_in_a_pause_counts_no_longer(scope: TelemetryScope) -> None:
    streams: dict[int, Any] = {1: Stream()}
    pauses = RequestPauses(streams)
    pauses.pause()
    streams.clear()
    pauses.end()
    pauses.end()
    assert paused(scope) == 0
