"""The /metrics endpoint."""

import urllib.request

import pytest

from baton.telemetry import metrics
from baton.telemetry.scope import TelemetryScope
from tests.support.metrics import parse_metrics


def test_metrics_are_served_on_a_free_port():
    counter = metrics.Counter("baton_test_things", "Things that a test counted.", ["kind"])
    counter.labels("odd").inc(3)
    server = metrics.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert 'baton_test_things_total{kind="odd"} 3.0' in text
    assert metrics.render()[0].decode().splitlines()[0] == text.splitlines()[0]


def test_taken_port_is_an_error():
    server = metrics.serve("127.0.0.1", 0)
    try:
        with pytest.raises(OSError, match="in use"):
            metrics.serve("127.0.0.1", server.port)
    finally:
        server.close()


def test_labels_of_the_scope_are_on_every_series_that_is_shown():
    scope = TelemetryScope("decode", "decode-0")
    scope.labels["model"] = "org/name"
    counter = metrics.Counter("test:shown", "Things that a test shows.", ["kind"])
    with scope.entered():
        counter.labels("a").inc()
        text = metrics.render()[0].decode()
    assert 'test:shown_total{kind="a",model="org/name"} 1.0' in text
    shown = metrics.serve("127.0.0.1", 0, scope)
    try:
        url = f"http://127.0.0.1:{shown.port}/metrics"
        as_prometheus = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        asked = urllib.request.Request(url, headers=as_prometheus)
        with urllib.request.urlopen(asked, timeout=5) as answer:
            assert parse_metrics(answer.read().decode()).keys() == parse_metrics(text).keys()
    finally:
        shown.close()
