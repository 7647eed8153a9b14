"""Services: which pods are behind them, how late that is known, their names and connections."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import dns.message
import dns.rcode
import pytest

from tests.k8s.pods.services.dns import answer
from tests.k8s.pods.services.endpoints import Backend, Late, endpoints, target
from tests.k8s.pods.services.proxy import ServicePort
from tests.k8s.pods.services.table import ServiceTable
from tests.support.network.listener import listening
from tests.support.wait import eventually

LABELS = {"app": "router"}
A = Backend("router-0", "10.0.0.2", LABELS, {"grpc": 9000}, hostname="router-0", subdomain="r")
B = replace(A, name="router-1", address="10.0.0.3", hostname="router-1")
OTHER = Backend("other", "10.0.0.4", {"app": "x"})


def service(name="r", **spec):
    ports = [{"port": 80, "targetPort": "grpc"}]
    base = {"clusterIP": "10.1.0.5", "selector": LABELS, "ports": ports}
    return {"metadata": {"name": name}, "spec": {**base, **spec}}


def behind(pods, **spec):
    return [pod.name for pod in endpoints(service(**spec), pods)]


def test_pods_that_are_ready_and_stay():
    unready = replace(B, ready=False)
    going = replace(B, terminating=True)
    assert behind([A, B, OTHER]) == ["router-0", "router-1"]
    assert behind([A, unready]) == behind([A, going]) == ["router-0"]
    assert behind([A], selector=None) == []


def test_where_none_stays_those_that_go_still_serve():
    going = replace(B, terminating=True)
    assert behind([going, replace(A, ready=False)]) == ["router-1"]
    assert behind([going], clusterIP="None") == []


def test_addresses_before_readiness_where_a_service_says_so():
    pods = [replace(A, ready=False), replace(B, terminating=True)]
    assert behind(pods, publishNotReadyAddresses=True) == ["router-0", "router-1"]


def test_ports_by_name_number_and_default():
    assert target({"port": 80, "targetPort": "grpc"}, A) == 9000
    assert target({"port": 80, "targetPort": "http"}, A) is None
    assert target({"port": 80, "targetPort": 8000}, A) == 8000
    assert target({"port": 80}, A) == 80


async def test_changes_are_known_late_and_in_order():
    known = []
    late = Late(0, 0.02, known.append)
    for value in (1, 1, 2, 0):
        late.change(value)
    assert (late.known, known) == (0, [])
    await eventually(lambda: known == [1, 2, 0])
    assert late.known == 0


@pytest.fixture
def table():
    made = ServiceTable([service(), service("headless", clusterIP="None")], "baton", 0)
    headless = [replace(pod, subdomain="headless") for pod in (A, B)]
    made.services["headless"].endpoints.known = tuple(headless)
    return made


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("r.baton.svc.cluster.local", ["10.1.0.5"]),
        ("headless.baton.svc.cluster.local", ["10.0.0.2", "10.0.0.3"]),
        ("router-1.headless.baton.svc.cluster.local", ["10.0.0.3"]),
        ("router-2.headless.baton.svc.cluster.local", None),
        ("router-0.r.baton.svc.cluster.local", None),
        ("none.baton.svc.cluster.local", None),
        ("r.other.svc.cluster.local", None),
        ("example.com", None),
    ],
)
def test_names(table, name, addresses):
    assert table.resolve(name) == addresses


def test_dns(table):
    def ask(name, kind="A"):
        query = dns.message.make_query(name, kind)
        return dns.message.from_wire(answer(query.to_wire(), table.resolve))

    found = ask("Headless.baton.svc.cluster.local.")
    assert sorted(map(str, found.answer[0])) == ["10.0.0.2", "10.0.0.3"]
    assert ask("none.baton.svc.cluster.local.").rcode() == dns.rcode.NXDOMAIN
    of_six = ask("r.baton.svc.cluster.local.", "AAAA")
    assert (of_six.rcode(), of_six.answer) == (dns.rcode.NOERROR, [])


@asynccontextmanager
async def proxied(serve):
    """Yield a connection through a Service's port to a pod, and the port."""
    async with listening(serve) as pod:
        port = ServicePort("127.0.0.1", 0)
        port.targets = [("127.0.0.1", pod)]
        number = await port.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        try:
            yield reader, writer, port
        finally:
            port.close()
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_bytes_pass_both_ways_and_ends_too():
    async def serve(reader, writer):
        asked = await reader.read()
        writer.write(asked * 2)
        writer.close()
        await writer.wait_closed()

    async with proxied(serve) as (reader, writer, port):
        asked = b"x" * 3_000_000
        writer.write(asked)
        writer.write_eof()
        assert await reader.read() == asked * 2
        assert (port.accepted, port.refused) == (1, 0)


async def test_a_connection_stays_with_its_pod_when_endpoints_change():
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.close()
        await writer.wait_closed()

    async with proxied(serve) as (reader, writer, port):
        for line in (b"one\n", b"two\n"):
            writer.write(line)
            assert await reader.readline() == line
            port.targets = ()


async def test_a_pod_that_resets_resets_its_client():
    async def serve(reader, writer):
        await reader.readline()
        writer.transport.abort()

    async with proxied(serve) as (reader, writer, _):
        writer.write(b"one\n")
        assert await reader.read() == b""


@pytest.mark.parametrize("behind", [(), (("127.0.0.1", 1),)])
async def test_without_a_pod_a_client_is_reset(behind):
    port = ServicePort("127.0.0.1", 0)
    port.targets = behind
    number = await port.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    assert port.refused == 1
    port.close()
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
