"""TLS under gRPC: who is served, who is refused, and what a handshake may cost."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.wrappers_pb2 import BytesValue, UInt64Value

from baton.rpc.server.server import Server
from baton.rpc.tls.contexts import HTTP2
from baton.rpc.tls.public import public_tls
from baton.rpc.transport import handshake
from baton.settings import GrpcSettings, PublicSettings, StartupError
from baton.telemetry import metrics
from bench.harness.metrics import parse_metrics
from tests.support.clock import Stopwatch, within
from tests.support.grpc.echo_service import SERVICE, EchoService, EchoStub
from tests.support.http2.frames import PREFACE, settings
from tests.support.tls import CERT, KEY, LOCKED_KEY, OTHER_KEY, client_context
from tests.support.wait import eventually

TLS = PublicSettings(tls_cert=CERT, tls_key=KEY)
OPEN = "baton_rpc_connections"
FAILED = 'baton_rpc_tls_failures_total{reason="failed"}'
PROTOCOL = 'baton_rpc_tls_failures_total{reason="protocol"}'


@asynccontextmanager
async def serving_tls() -> AsyncIterator[tuple[Server, EchoService]]:
    service = EchoService()
    async with (
        public_tls(TLS, 60) as tls,
        Server(GrpcSettings(host="localhost"), "test", tls=tls) as server,
    ):
        server.add(service.register, SERVICE)
        await server.start()
        yield server, service


def value(name: str) -> float:
    return parse_metrics(metrics.render()[0].decode()).get(name, 0.0)


async def test_calls_of_grpcs_own_client():
    credentials = grpc.ssl_channel_credentials(CERT.read_bytes())
    async with (
        serving_tls() as (server, _),
        grpc.aio.secure_channel(server.address, credentials) as channel,
    ):
        stub = EchoStub(channel)
        large = BytesValue(value=bytes(range(256)) * 12_000)
        assert await stub.Unary(large, timeout=20) == large
        flood = stub.Flood(UInt64Value(value=200), timeout=20)
        assert sum([len(message.value) async for message in flood]) == 200 * 16_384
        missing = channel.unary_unary("/no.Service/Method")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await missing(b"", timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)], ids=["none", "another"])
async def test_a_client_that_does_not_say_http2_is_refused(protocols):
    refused, before = value(PROTOCOL), value(OPEN)
    async with serving_tls() as (server, service):
        host, port = server.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=client_context(*protocols)
        )
        writer.write(PREFACE + settings())
        async with within(5):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)):
                await reader.readexactly(1)
        writer.transport.abort()
        assert value(PROTOCOL) == refused + 1
        await eventually(lambda: value(OPEN) == before)
        assert service.began == 0


@pytest.mark.parametrize(
    "said", [PREFACE + settings(), b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n", b""]
)
async def test_what_is_no_handshake_ends_the_connection(said):
    failed, before = value(FAILED), value(OPEN)
    async with serving_tls() as (server, _):
        host, port = server.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        writer.write_eof()
        async with within(5):
            with suppress(ConnectionError):
                await reader.read()  # an alert, perhaps
        writer.transport.abort()
        await eventually(lambda: value(OPEN) == before)
        assert value(FAILED) == failed + 1


@asynccontextmanager
async def silent_clients(server: Server, count: int) -> AsyncIterator[None]:
    """Connections on which no handshake comes."""
    host, port = server.address.rsplit(":", 1)
    writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(count)]
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


async def test_a_handshake_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.2)
    before, failed = value(OPEN), value(FAILED)
    async with serving_tls() as (server, _), silent_clients(server, 20):
        await eventually(lambda: value(FAILED) == failed + 20)
        assert value(OPEN) == before


async def test_a_server_that_stops_does_not_wait_for_handshakes():
    before = value(OPEN)
    async with AsyncExitStack() as clients:
        async with serving_tls() as (server, _):
            await clients.enter_async_context(silent_clients(server, 3))
            await eventually(lambda: value(OPEN) == before + 3)
            watch = Stopwatch()
        assert watch.seconds < 5
        assert value(OPEN) == before


async def test_a_client_that_leaves_right_after_its_handshake_leaves_nothing():
    before = value(OPEN)
    async with serving_tls() as (server, service):
        host, port = server.address.rsplit(":", 1)
        for _ in range(10):
            _, writer = await asyncio.open_connection(host, int(port), ssl=client_context(HTTP2))
            writer.write(PREFACE + settings())
            writer.transport.abort()
        await eventually(lambda: value(OPEN) == before)
        credentials = grpc.ssl_channel_credentials(CERT.read_bytes())
        async with grpc.aio.secure_channel(server.address, credentials) as channel:
            assert await EchoStub(channel).Empty(Empty(), timeout=20) == Empty()
        assert service.active == 0


@pytest.mark.parametrize(
    ("cert", "key", "words"),
    [
        (CERT, None, ("without public.tls_key:", "BATON_PUBLIC_TLS_KEY", "--public-tls-key")),
        (None, KEY, ("without public.tls_cert:", "BATON_PUBLIC_TLS_CERT", "--public-tls-cert")),
        (
            CERT.with_name("no.pem"),
            KEY,
            ("public.tls_cert", "no.pem", "No such file", "--public-tls-cert"),
        ),
        (CERT, KEY.parent, ("public.tls_key", "Is a directory", "--public-tls-key")),
        (CERT, OTHER_KEY, ("public.tls_key", "other.key does not match the certificate")),
        (CERT, LOCKED_KEY, ("public.tls_key", "without a password")),
        (CERT, CERT, ("public.tls_key", "no PEM private key")),
        (KEY, KEY, ("public.tls_cert", "no PEM certificate")),
    ],
)
async def test_files_that_cannot_be_used_are_one_sentence(cert, key, words):
    with pytest.raises(StartupError) as caught:
        async with public_tls(PublicSettings(tls_cert=cert, tls_key=key), 60):
            pass
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text and text.endswith(".")


async def test_no_files_mean_plain_text():
    async with public_tls(PublicSettings(), 60) as tls:
        assert tls is None
