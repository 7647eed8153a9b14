"""Probes: thresholds, and what each kind of try finds."""

from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1.health import aio as health
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from tests.k8s.pods.probes.checks import check, port_number
from tests.k8s.pods.probes.state import ProbeState, Timing
from tests.support.network.listener import listening

CONTAINER = {"name": "c", "ports": [{"name": "ops", "containerPort": 9090}]}


async def no_exec(command, seconds):
    raise AssertionError("nothing is to be run")


@pytest.mark.parametrize(
    ("results", "holds"),
    [
        ("+", False),
        ("++", True),
        ("+-+", False),
        ("++--", True),
        ("++---", False),
        ("++--+--", True),
        ("++---+", False),
        ("++---++", True),
    ],
)
def test_thresholds_count_results_in_a_row(results, holds):
    timing = Timing(success_threshold=2, failure_threshold=3)
    state = ProbeState(timing, holds=False)
    for result in results:
        state.record(result == "+")
    assert state.holds is holds


def test_a_result_decides_when_its_threshold_is_reached():
    state = ProbeState(Timing(failure_threshold=2), holds=True)
    assert [state.record(False) for _ in range(3)] == [False, True, True]


def test_defaults_are_kubernetes_own():
    assert Timing.of({}) == Timing(0, 10, 1, 1, 3)


@pytest.mark.parametrize("field", ["periodSeconds", "timeoutSeconds", "failureThreshold"])
def test_what_is_out_of_range(field):
    with pytest.raises(ValueError, match="at least 1"):
        Timing.of({field: 0})


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.1 302 Found\r\n\r\n", ""),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "HTTP status 503"),
        (b"", "no HTTP answer: []"),
    ],
)
async def test_http(answer, wrong):
    asked = []

    async def serve(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with listening(serve) as port:
        header = {"name": "x-probe", "value": "1"}
        probe = {"httpGet": {"path": "/livez", "port": port, "httpHeaders": [header]}}
        assert await check(probe, CONTAINER, "127.0.0.1", no_exec, 5) == wrong
    assert asked[0].startswith(b"GET /livez HTTP/1.1\r\n")
    assert b"x-probe: 1\r\n" in asked[0]


async def test_tcp_and_http_where_nobody_listens(unused_tcp_port):
    for probe in ({"tcpSocket": {"port": unused_tcp_port}}, {"httpGet": {"port": unused_tcp_port}}):
        wrong = await check(probe, CONTAINER, "127.0.0.1", no_exec, 5)
        assert "ConnectionRefusedError" in wrong


async def test_who_is_silent_fails_in_time():
    async def silent(reader, writer):
        await reader.read()

    async with listening(silent) as port:
        wrong = await check({"httpGet": {"port": port}}, CONTAINER, "127.0.0.1", no_exec, 0.05)
    assert "TimeoutError" in wrong


async def test_exec():
    async def run(command, seconds):
        return {"true": 0, "false": 1}[command[0]]

    for command, wrong in (("true", ""), ("false", "exit code 1")):
        probe = {"exec": {"command": [command]}}
        assert await check(probe, CONTAINER, "127.0.0.1", run, 5) == wrong


@asynccontextmanager
async def health_server():
    server = grpc.aio.server()
    servicer = health.HealthServicer()
    add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield servicer, port
    finally:
        await server.stop(None)


async def test_grpc():
    async with health_server() as (servicer, port):
        await servicer.set("readiness", HealthCheckResponse.NOT_SERVING)
        for service, wrong in (("", ""), ("readiness", "NOT_SERVING"), ("none", "NOT_FOUND")):
            probe = {"grpc": {"port": port, "service": service}}
            found = await check(probe, CONTAINER, "127.0.0.1", no_exec, 5)
            assert found.startswith(wrong)
            assert bool(found) is bool(wrong)


def test_ports_by_name():
    assert port_number("ops", CONTAINER) == 9090
    assert port_number(80, CONTAINER) == 80
    with pytest.raises(ValueError, match="container c has no port named http"):
        port_number("http", CONTAINER)
