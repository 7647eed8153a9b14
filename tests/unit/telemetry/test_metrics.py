"""What /metrics shows."""

from contextlib import nullcontext

from prometheus_client.openmetrics.parser import text_string_to_metric_families

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


def test_openmetrics_has_exemplars_and_nothing_says_when_a_series_was_made():
    scope = TelemetryScope()
    with scope.entered():
        histogram = metrics.Histogram("baton_test_seconds", "Seconds.", ["model"], buckets=(1, 2))
        histogram.labels("m").observe(1.5, {"trace_id": "ab" * 16})
        metrics.Counter("baton_test_events_total", "Events.").inc()
        text, kind = metrics.render()
        opened, open_kind = metrics.render(openmetrics=True)
    assert (kind.split(";")[0], open_kind.split(";")[0]) == (
        "text/plain",
        "application/openmetrics-text",
    )
    assert b"_created" not in text + opened
    assert b"trace_id" not in text
    families = {one.name: one for one in text_string_to_metric_families(opened.decode())}
    assert families["baton_test_events"].type == "counter"
    exemplars = [
        sample.exemplar.labels
        for sample in families["baton_test_seconds"].samples
        if sample.exemplar is not None
    ]
    assert exemplars == [{"trace_id": "ab" * 16}]


def test_names_that_openmetrics_would_change_are_rendered_as_text():
    with TelemetryScope().entered():
        metrics.Gauge("vllm:baton_test_names", "Sequences.").set(1)
        data, kind = metrics.render(openmetrics=True)
    assert kind.startswith("text/plain")
    assert b"vllm:baton_test_names 1.0" in data
