"""Several composed processes in one: each records for itself."""

import asyncio
import io
import json

from baton.telemetry import logs, metrics, tracing
from baton.telemetry.context import request_id
from baton.telemetry.scope import PROCESS, TelemetryScope, current, detached_context, scoped_thread

THINGS = metrics.Counter("baton_scope_test_things_total", "Things that a test counted.", ["kind"])
HELD = metrics.Gauge("baton_scope_test_held", "Things that a test holds.")
SECONDS = metrics.Histogram("baton_scope_test_seconds", "Seconds that a test took.", buckets=(1, 2))


def value(scope: TelemetryScope, name: str, **labels: str) -> float | None:
    return scope.registry.get_sample_value(name, labels)


async def count(scope: TelemetryScope, number: int) -> None:
    with scope.entered():
        THINGS.labels("odd").inc(number)
        HELD.inc()
        await asyncio.sleep(0)
        HELD.set(number)
        HELD.dec()
        SECONDS.observe(number)
        assert b"baton_scope_test_held" in metrics.render()[0]


async def test_each_scope_counts_its_own():
    one, other = TelemetryScope("router", "r-1"), TelemetryScope("router", "r-2")
    await asyncio.gather(count(one, 3), count(other, 5))
    for scope, number in ((one, 3), (other, 5)):
        assert value(scope, "baton_scope_test_things_total", kind="odd") == number
        assert value(scope, "baton_scope_test_held") == number - 1
        assert value(scope, "baton_scope_test_seconds_sum") == number
    assert value(PROCESS, "baton_scope_test_things_total", kind="odd") is None


def test_the_process_shows_a_family_before_its_first_use_and_a_scope_from_it_on():
    scope = TelemetryScope("router", "r-1")
    assert value(PROCESS, "baton_scope_test_held") == 0
    assert value(scope, "baton_scope_test_held") is None
    HELD.inc()
    assert value(PROCESS, "baton_scope_test_held") == 1
    assert value(scope, "baton_scope_test_held") is None


async def test_tasks_and_threads_stay_in_the_scope_that_started_them():
    scope = TelemetryScope("router", "r-1")
    loop = asyncio.get_running_loop()
    from_thread: asyncio.Future[TelemetryScope] = loop.create_future()

    def report() -> None:
        loop.call_soon_threadsafe(lambda: from_thread.set_result(current()))

    async def inner() -> TelemetryScope:
        return current()

    with scope.entered():
        task = asyncio.create_task(inner())
        scoped_thread(report, "test").start()
    assert current() is PROCESS
    assert await task is scope
    assert await from_thread is scope


def test_lines_and_spans_carry_the_scope_s_name(configured_logs):
    out: io.StringIO = configured_logs
    with TelemetryScope("decode", "decode-1").entered():
        logs.get_logger("baton.test").info("inside")
        assert not tracing.tracer().start_span("inside").is_recording()
    logs.get_logger("baton.test").info("outside")
    inside, outside = map(json.loads, out.getvalue().splitlines())
    assert (inside["service"], inside["instance"]) == ("decode", "decode-1")
    assert (outside["service"], outside["instance"]) == ("router", "router-1")


async def test_a_detached_context_keeps_the_scope_and_nothing_of_the_request() -> None:
    scope = TelemetryScope("store", "store-1")
    token = request_id.set("r1")
    try:
        with scope.entered():
            context = detached_context()
    finally:
        request_id.reset(token)
    assert context.run(current) is scope
    assert context.run(request_id.get) == ""
