"""The /metrics endpoint."""

import urllib.request

import pytest

from baton.telemetry import metrics


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
