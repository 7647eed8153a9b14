"""What /metrics shows."""

from baton.telemetry import metrics


def test_a_family_shows_what_was_counted():
    counter = metrics.Counter("baton_test_things", "Things that a test counted.", ["kind"])
    counter.labels("odd").inc(3)
    text = metrics.render()[0].decode()
    assert 'baton_test_things_total{kind="odd"} 3.0' in text
