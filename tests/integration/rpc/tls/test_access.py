"""Who may call what inside a cluster: every method of every internal service, by every caller."""

import asyncio
import importlib
import pkgutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from baton.cli.admin.certs.authority import Authority, IssuedCertificate
from baton.errors import BatonError, Reason
from baton.internal import v1
from baton.rpc.channel.channel import Channel
from baton.rpc.server.guard import CallEnd
from baton.rpc.server.server import Server
from baton.rpc.tls import mutual
from baton.rpc.tls.files import CertificateFiles
from baton.rpc.tls.identity import ROLES
from baton.rpc.tls.mutual import MutualTls, mutual_tls
from baton.settings import GrpcSettings, TlsSettings
from baton.telemetry import metrics
from bench.harness.metrics import parse_metrics
from tests.support.clock import within
from tests.support.network.listener import listening
from tests.support.tls.roles import role, write

EXPECTED = {
    "WorkerService/Run": "frontend",
    "WorkerService/WatchLoad": "router operator",
    "WorkerService/GetTokenizer": "frontend",
    "RouterService/Place": "frontend",
    "RouterService/Explain": "operator",
    "RouterService/Outlook": "picker operator",
    "KvEventService/Watch": "router",
    "KvStoreService/Attach": "prefill decode kvstore operator",
    "KvStoreService/Put": "prefill decode operator",
    "KvStoreService/Get": "prefill decode kvstore operator",
    "KvStoreService/List": "operator",
    "KvStoreService/Drop": "operator",
    "KvStoreService/Lookup": "prefill decode operator",
    "KvStoreService/Stat": "operator",
}
"""Said again here, so that a change of the table is meant."""


def services() -> Iterator[Any]:
    """Yield the descriptor of every internal service, with the module of its servicers."""
    for module in pkgutil.iter_modules(v1.__path__):
        if module.name.endswith("_pb2"):
            messages = importlib.import_module(f"{v1.__name__}.{module.name}")
            for service in messages.DESCRIPTOR.services_by_name.values():
                yield service, importlib.import_module(f"{v1.__name__}.{module.name}_grpc")


METHODS = {
    f"{service.name}/{method.name}": f"/{service.full_name}/{method.name}"
    for service, _ in services()
    for method in service.methods
}
OTHERS = {
    "Health/Check": "/grpc.health.v1.Health/Check",
    "Health/Watch": "/grpc.health.v1.Health/Watch",
    "Health/List": "/grpc.health.v1.Health/List",
    "v1/Info": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "v1alpha/Info": "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}
AUTHORITY, STRANGER = Authority.new("test", 1), Authority.new("another", 1)


def test_the_table_of_this_test_has_every_method() -> None:
    assert set(EXPECTED) == set(METHODS)
    assert {role for roles in EXPECTED.values() for role in roles.split()} <= ROLES


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[Server, list[CallEnd]]]:
    """Serve every internal service, by a process that has every role."""
    issued = AUTHORITY.issue([f"{name}.baton" for name in sorted(ROLES)], 1)
    ended: list[CallEnd] = []
    async with (
        mutual_tls(write(directory, issued, AUTHORITY)) as tls,
        Server(GrpcSettings(reflection=True), "all", on_call_end=ended.append, tls=tls) as server,
    ):
        for service, module in services():
            add = getattr(module, f"add_{service.name}Servicer_to_server")
            servicer = getattr(module, f"{service.name}Servicer")()
            server.add(lambda table, add=add, servicer=servicer: add(servicer, table), "")
        await server.start()
        yield server, ended


async def code(channel: Any, path: str) -> grpc.StatusCode:
    """Return how a call without a message ends; OK where it gets an answer."""
    call = channel.unary_stream(path, request_serializer=bytes, response_deserializer=bytes)(
        b"", timeout=20
    )
    try:
        await call.read()
        return grpc.StatusCode.OK
    except BatonError as error:
        return error.code
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        call.cancel()


@pytest.mark.parametrize("caller", [*sorted(ROLES), "stranger"])
async def test_a_role_may_call_what_the_table_says(caller: str, tmp_path: Path) -> None:
    async with serving(tmp_path / "server") as (server, _):
        denied, before = 0, denied_calls()
        async with (
            mutual_tls(role(tmp_path, AUTHORITY, caller)),
            Channel(server.address) as channel,
            within(20),
        ):
            for name, path in METHODS.items():
                got = await code(channel, path)
                if caller in EXPECTED[name].split():
                    assert got is not grpc.StatusCode.PERMISSION_DENIED, name
                    assert got is not grpc.StatusCode.UNAVAILABLE, name
                else:
                    assert got is grpc.StatusCode.PERMISSION_DENIED, name
                    denied += 1
            for name, path in OTHERS.items():
                member = caller == "operator" or (caller in ROLES and name.startswith("Health"))
                got = await code(channel, path)
                assert (got is grpc.StatusCode.PERMISSION_DENIED) is not member, name
                denied += not member
        assert denied_calls() == before + denied


def denied_calls() -> float:
    values = parse_metrics(metrics.render()[0].decode())
    return float(sum(v for name, v in values.items() if name.startswith("baton_rpc_denied_total")))


EXPIRED = AUTHORITY.issue(["operator.baton"], -1, begins=timedelta(days=-2))
LATER = AUTHORITY.issue(["operator.baton"], 2, begins=timedelta(days=1))
UNSIGNED = STRANGER.issue(["operator.baton"], 1)
NOBODY = {
    "unsigned": UNSIGNED,
    "expired": EXPIRED,
    "not valid yet": LATER,
    "would reject the certificate": None,
}
MEMBER = AUTHORITY.issue(["operator.baton"], 1)


def secure_channel(address: str, own: IssuedCertificate | None) -> grpc.aio.Channel:
    shown = (None, None) if own is None else (own.key, own.cert)
    credentials = grpc.ssl_channel_credentials(AUTHORITY.cert, *shown)
    options = [("grpc.ssl_target_name_override", "kvstore.baton")]
    return grpc.aio.secure_channel(address, credentials, options)


@pytest.mark.parametrize("who", ["plaintext", *NOBODY])
async def test_who_has_no_certificate_of_the_cluster_gets_nothing(who: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, ended):
        async with secure_channel(server.address, MEMBER) as channel:
            assert await code(channel, OTHERS["Health/Check"]) is grpc.StatusCode.OK
        ended.clear()
        if who == "plaintext":
            channel = grpc.aio.insecure_channel(server.address)
        else:
            channel = secure_channel(server.address, NOBODY[who])
        async with channel, within(20):
            for name, path in {**METHODS, **OTHERS}.items():
                assert await code(channel, path) is grpc.StatusCode.UNAVAILABLE, name
        assert not ended


@pytest.mark.parametrize("method", METHODS)
async def test_a_server_of_another_role_gets_no_call(method: str, tmp_path: Path) -> None:
    ended: list[CallEnd] = []
    files = role(tmp_path, AUTHORITY, "frontend")
    async with (
        mutual_tls(files) as tls,
        Server(GrpcSettings(), "false", on_call_end=ended.append, tls=tls) as server,
    ):
        await server.start()
        async with mutual_tls(role(tmp_path, AUTHORITY, "operator")), Channel(server.address) as c:
            assert await code(c, METHODS[method]) is grpc.StatusCode.UNAVAILABLE
    assert not ended


async def test_a_channel_does_not_speak_to_who_is_not_of_the_cluster(tmp_path: Path) -> None:
    """Neither a server that another authority vouches for, nor one that speaks plain text."""
    false = write(tmp_path / "false", STRANGER.issue(["kvstore.baton"], 1), STRANGER)
    async with mutual_tls(false) as tls:
        for server_tls in (tls, None):
            ended: list[CallEnd] = []
            server = Server(GrpcSettings(), "false", on_call_end=ended.append, tls=server_tls)
            async with server:
                await server.start()
                async with (
                    mutual_tls(role(tmp_path, AUTHORITY, "operator")),
                    Channel(server.address) as channel,
                ):
                    path = METHODS["KvStoreService/Stat"]
                    assert await code(channel, path) is grpc.StatusCode.UNAVAILABLE
            assert not ended


async def test_a_server_that_does_not_agree_on_http2_hears_nothing(tmp_path: Path) -> None:
    """RFC 9113, section 3.2: over TLS it is spoken where both have said so (ALPN)."""
    made = mutual.read(role(tmp_path, AUTHORITY, "kvstore"))
    assert made is not None
    other = made.server_context
    other.set_alpn_protocols(["http/1.1"])
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            heard.append(await reader.read(1))

    async with (
        listening(listen, ssl=other) as port,
        mutual_tls(role(tmp_path, AUTHORITY, "operator")),
        Channel(f"127.0.0.1:{port}") as channel,
        within(20),
    ):
        path = METHODS["KvStoreService/Stat"]
        assert await code(channel, path) is grpc.StatusCode.UNAVAILABLE
    assert not any(heard)


async def test_a_denied_caller_is_told_why(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "server") as (server, _),
        mutual_tls(role(tmp_path, AUTHORITY, "router")),
        Channel(server.address) as channel,
    ):
        put = channel.unary_unary(METHODS["KvStoreService/Put"], bytes, bytes)
        with pytest.raises(BatonError) as caught:
            await put(b"", timeout=20)
    assert caught.value.reason is Reason.PERMISSION_DENIED
    assert "KvStoreService/Put is not allowed for the role" in str(caught.value)
    assert "router.baton" in str(caught.value)


def test_tls_is_13_and_no_session_is_resumed(tmp_path: Path) -> None:
    files: TlsSettings = role(tmp_path, AUTHORITY, "router")
    assert files.cert is not None and files.key is not None
    tls = MutualTls(CertificateFiles("tls.", files.cert, files.key, files.ca), "baton", ["router"])
    for context in (tls.server_context, tls.client_context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert tls.server_context.num_tickets == 0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
async def test_clients_that_speak_at_once_are_heard(new_loop: Any, tmp_path: Path) -> None:
    """What comes with a connection, before TLS is there to read it, is not lost."""

    async def connect() -> None:
        async with serving(tmp_path / "server") as (server, _):
            hello = greeting(tmp_path, server.address)
            for _ in range(20):
                await asyncio.to_thread(hello)

    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(connect())

    await asyncio.to_thread(run)


def greeting(directory: Path, address: str) -> Callable[[], None]:
    """Return what makes a connection, and says hello in the moment that it stands."""
    files = role(directory, AUTHORITY, "operator")
    context = ssl.create_default_context(cafile=str(files.ca))
    context.check_hostname = False
    assert files.cert is not None
    context.load_cert_chain(files.cert, files.key)
    context.set_alpn_protocols(["h2"])
    host, port = address.split(":")

    def hello() -> None:
        with (
            socket.create_connection((host, int(port)), timeout=20) as plain,
            context.wrap_socket(plain) as tls,
        ):
            assert tls.recv(9)

    return hello
