"""What /metrics shows."""

from contextlib import nullcontext

from baton.telemetry import metrics
from baton.telemetry.scope import TelemetryScope


def test_a_family_shows_what_was_counted():
    counter = metrics.Counter("baton_test_things", "Things that a test counted.", ["kind"])
    counter.labels("odd").inc(3)
    text = metrics.render()[0].decode()
    assert 'baton_test_things_total{kind="odd"} 3.0' in text


def test_a_series_that_was_removed_is_absent_until_it_is_set_again():
    gauge = metrics.Gauge("baton_test_size", "A size that a test sets.", ["kind"])
    scope = TelemetryScope()
    for where in (nullcontext(), scope.entered()):
        with where:
            gauge.remove("odd")  # no such series yet
            gauge.labels("odd").set(1)
            gauge.labels("even").set(2)
            gauge.remove("odd")
            text = metrics.render()[0].decode()
            assert 'baton_test_size{kind="odd"}' not in text
            assert 'baton_test_size{kind="even"} 2.0' in text
            gauge.labels("odd").set(3)
            assert 'baton_test_size{kind="odd"} 3.0' in metrics.render()[0].decode()
            gauge.remove("odd")
