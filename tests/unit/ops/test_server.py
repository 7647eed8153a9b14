"""The ops port: what it answers, to whom, and what it takes no harm from."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise

import httpx
import pytest

from baton.ops import server as ops_server
from baton.ops.checks import START, Liveness, Readiness
from baton.ops.server import MAX_CONNECTIONS, OpsServer
from baton.process.heartbeat import beat
from baton.settings import OpsSettings, StartupError
from baton.telemetry import metrics
from baton.telemetry.scope import TelemetryScope
from bench.harness.metrics import parse_metrics
from tests.support.wait import eventually_blocking


@pytest.fixture
def ops() -> Iterator[OpsServer]:
    with closing(OpsServer(OpsSettings(stuck_seconds=1), Liveness(1.0), Readiness())) as server:
        yield server


def get(ops: OpsServer, path: str, method: str = "GET") -> httpx.Response:
    return httpx.request(method, f"http://{ops.address}{path}", timeout=30)


def test_a_process_that_starts_is_alive_and_not_ready(ops):
    ops.readiness.wait_for("engine", "the model is being loaded")
    assert (get(ops, "/livez").status_code, get(ops, "/livez").text) == (200, "ok\n")
    found = get(ops, "/readyz")
    assert found.status_code == 503
    assert found.text == (
        "[-]start: the process is starting\n[-]engine: the model is being loaded\nreadyz check "
        "failed\n"
    )
    ops.readiness.done(START)
    ops.readiness.done("engine")
    assert (get(ops, "/readyz").status_code, get(ops, "/readyz").text) == (200, "ok\n")
    assert get(ops, "/readyz?verbose").text == "[+]start ok\n[+]engine ok\nreadyz check passed\n"


def test_a_loop_that_is_stuck_is_noticed_and_one_that_goes_on_is_alive(ops):
    free = threading.Event()

    async def stick() -> None:
        beat(asyncio.get_running_loop(), ops.liveness)
        assert (await asyncio.to_thread(get, ops, "/livez")).status_code == 200
        eventually_blocking(lambda: get(ops, "/livez").status_code == 503)
        assert "[-]event-loop: stuck for " in get(ops, "/livez?verbose").text
        free.set()
        while (await asyncio.to_thread(get, ops, "/livez")).status_code != 200:
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(stick(), 60))
    assert free.is_set()


def test_metrics_are_those_of_the_scope_with_its_labels():
    scope = TelemetryScope("decode", "decode-0")
    scope.labels["model"] = "org/name"
    counter = metrics.Counter("test:shown", "Things that a test shows.", ["kind"])
    with scope.entered():
        counter.labels("a").inc()
        text = metrics.render()[0].decode()
        with closing(OpsServer(OpsSettings(), Liveness(), Readiness())) as ops:
            accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
            shown = httpx.get(f"http://{ops.address}/metrics", headers={"accept": accept})
    assert 'test:shown_total{kind="a",model="org/name"} 1.0' in text
    assert shown.headers["content-type"].startswith("text/plain; version=")
    assert parse_metrics(shown.text).keys() == parse_metrics(text).keys()


def test_metrics_are_rendered_once_for_all_that_ask_and_take_a_fifth_of_a_core(ops, monkeypatch):
    began: list[float] = []

    def render(*, openmetrics: bool) -> tuple[bytes, str]:
        began.append(time.monotonic())
        time.sleep(0.05)
        return b"", "text/plain"

    monkeypatch.setattr(ops_server, "render", render)

    async def ask(times: int) -> None:
        await asyncio.gather(*(ops.answer("GET", "/metrics") for _ in range(times)))

    for times in (1, 8, 8):
        asyncio.run_coroutine_threadsafe(ask(times), ops._loop).result(30)
    assert len(began) == 3
    assert all(later - earlier > 0.24 for earlier, later in pairwise(began))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/livez", 405),
        ("DELETE", "/metrics", 405),
    ],
)
def test_nothing_else_is_served(ops, method, path, status):
    assert get(ops, path, method).status_code == status


def test_head_has_no_body(ops):
    found = get(ops, "/readyz", "HEAD")
    assert (found.status_code, found.content) == (503, b"")
    assert int(found.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /livez\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nx: " + b"a" * 9000, b"431"),
    ],
)
def test_what_is_no_request_is_refused(ops, sent, status):
    host, port = ops.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(sent)
        assert client.recv(4096).split(b" ")[1] == status


def test_connections_that_send_nothing_keep_no_probe_out(ops):
    host, port = ops.address.split(":")
    with ExitStack() as stack:
        for _ in range(3 * MAX_CONNECTIONS):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        assert get(ops, "/livez").status_code == 200
        assert len(ops.connections) <= MAX_CONNECTIONS


def test_connection_that_sends_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(ops_server, "CONNECTION_SECONDS", 0.1)
    with closing(OpsServer(OpsSettings(), Liveness(), Readiness())) as ops:
        host, port = ops.address.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\n")
            assert client.recv(1) == b""


def test_taken_port_is_a_sentence(ops):
    port = int(ops.address.split(":")[1])
    with pytest.raises(StartupError, match=f"ops.port 127.0.0.1:{port} .*BATON_OPS_PORT"):
        OpsServer(OpsSettings(port=port), Liveness(), Readiness())
