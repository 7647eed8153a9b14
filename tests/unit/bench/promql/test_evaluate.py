"""PromQL in memory gives what Prometheus' documentation says."""

import pytest

from bench.harness.promql.evaluate import PromQLError, evaluate
from bench.harness.promql.series import SeriesStore

NOW = 100.0
Wanted = dict[tuple[tuple[str, str], ...], float]


@pytest.fixture
def store() -> SeriesStore:
    store = SeriesStore()
    for at in range(0, 101, 10):
        store.add("up", at, 1, pod="a", zone="x")
        store.add("up", at, 2, pod="b", zone="x")
        store.add("up", at, 5, pod="c", zone="y")
        store.add("requests_total", at, at * 3, pod="a")
    store.add("old", 60, 9, pod="a")
    return store


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sum(up)", {(): 8}),
        ('sum(up{zone="x"})', {(): 3}),
        ('sum(up{zone!="x"})', {(): 5}),
        ('sum(up{pod=~"a|b"})', {(): 3}),
        ('sum(up{pod!~"a|b"})', {(): 5}),
        ("max by (zone) (up)", {(("zone", "x"),): 2, (("zone", "y"),): 5}),
        ("max without (pod) (up)", {(("zone", "x"),): 2, (("zone", "y"),): 5}),
        ("count(up) / 2", {(): 1.5}),
        ("sum(old)", {(): 9}),
        ("sum(last_over_time(old[30s]))", {}),
        ("sum(last_over_time(old[41s]))", {(): 9}),
        ('rate(requests_total{pod="a"}[50s])', {(("pod", "a"),): 3}),
        ("sum by (zone) (up) > 4", {(("zone", "y"),): 5}),
        ("4 < sum by (zone) (up)", {(("zone", "y"),): 5}),
        ("sum by (zone) (up) > bool 4", {(("zone", "x"),): 0, (("zone", "y"),): 1}),
        ('up{pod="c"} - on (pod) up', {(("pod", "c"),): 0}),
        ("sum(up) / sum(nothing)", {}),
        ("absent_metric", {}),
    ],
)
def test_expressions(
    text: str, wanted: dict[tuple[tuple[str, str], ...], float], store: SeriesStore
) -> None:
    assert evaluate(text, store, NOW) == {frozenset(k): pytest.approx(v) for k, v in wanted.items()}


def test_numbers(store: SeriesStore) -> None:
    assert evaluate("time() - 2 * 3", store, NOW) == 94
    assert evaluate("1 > bool 2", store, NOW) == 0


def test_counters_that_restart_have_no_negative_rate() -> None:
    store = SeriesStore()
    for at, value in ((0, 50), (10, 60), (20, 5), (30, 15)):
        store.add("total", at, value)
    assert evaluate("increase(total[30s])", store, 30) == {
        frozenset({}): pytest.approx(15 * 30 / 20)
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sum(", "is not PromQL"),
        ("label_replace(up, 'a', 'b', 'c', 'd')", "not supported"),
        ("up offset 5m", "not supported"),
        ("up * on (zone) up", "several series match"),
        ("topk(1, up)", "not supported"),
        ("sum(1)", "not PromQL"),
    ],
)
def test_what_is_not_supported_is_rejected(text: str, wanted: str, store: SeriesStore) -> None:
    with pytest.raises(PromQLError, match=wanted):
        evaluate(text, store, NOW)


def test_an_exposition_becomes_samples() -> None:
    store = SeriesStore()
    text = '# TYPE a gauge\na{x="1"} 4\n# TYPE b counter\nb_total 2\n'
    store.scrape(text, 1.0, pod="p")
    assert evaluate('sum(a{pod="p",x="1"}) + sum(b_total)', store, 2.0) == {frozenset(): 6}
