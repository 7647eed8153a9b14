"""Receivers may be anything: none is reached that may not be, and none delays others."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest

from baton.host.networks import AllowedNetworks
from baton.webhooks import sender as module
from baton.webhooks.records import SendResult
from baton.webhooks.sender import MAX_ANSWER_BYTES, WebhookSender
from tests.support.clock import DEADLINE_SECONDS
from tests.support.network.listener import listening
from tests.support.state.databases import Databases
from tests.support.webhooks.receiver import OK, receiving
from tests.support.webhooks.stage import COMPLETED, OURS, webhook_stage

OWN = ("127.0.0.0/8", "::1/128")
OWN_HOST = "127.0.0.2"
PUBLIC = ("public",)
TLS = Path(__file__).parents[2] / "support/tls"
NOT_ALLOWED = "not connected: its address is not in webhooks.allow"


@asynccontextmanager
async def sending(
    networks: tuple[str, ...] = OWN, seconds: float = DEADLINE_SECONDS, tls: Any = None
) -> AsyncIterator[Callable[[str], Any]]:
    sender = WebhookSender(AllowedNetworks(networks, "webhooks.allow"), seconds, 16, tls)

    async def send(url: str) -> SendResult:
        return await sender.send(url, b"{}", {"webhook-id": "evt_1"})

    try:
        yield send
    finally:
        await sender.close()


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]", "[::ffff:127.0.0.1]"),
        *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "224.0.0.1", "[ff02::1]", "0.0.0.0", "[::]"),
        *("0x7f.1", "localhost", "10.0.0.1", "100.64.0.1", "[fd00:ec2::254]"),
    ],
)
async def test_no_address_inside_is_reached(host: str) -> None:
    async with receiving() as inside, sending(PUBLIC) as send:
        for scheme in ("https", "http"):
            sent = await send(f"{scheme}://{host}:{inside.port}/")
            assert (sent.status, sent.delivered) == (0, False)
            assert NOT_ALLOWED in sent.detail or "its host has no address" in sent.detail
            assert NOT_ALLOWED in sent.detail or host == "localhost"
    assert inside.requests == []


async def test_public_addresses_are_not_reached_without_tls() -> None:
    async with sending(PUBLIC) as send:
        sent = await send("http://93.184.215.14/")
    assert sent.detail == f"{NOT_ALLOWED}, or public without TLS"


async def test_a_name_whose_address_changes_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def look_up(host: str, port: int, *_: Any) -> list[Any]:
        nonlocal asked
        asked += 1
        # The first answer is what a check before the connect would see.
        ip = "93.184.215.14" if asked == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    networks = AllowedNetworks(PUBLIC, "webhooks.allow")
    assert networks.allow(look_up("rebinds.example", 443)[0][4][0], encrypted=True)
    async with receiving() as inside, sending(PUBLIC) as send:
        sent = await send(f"https://rebinds.example:{inside.port}/")
    assert asked == 2
    assert NOT_ALLOWED in sent.detail
    assert inside.requests == []


async def test_certificates_must_be_valid() -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    known = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
    async with receiving(tls=served) as receiver, sending() as send, sending(tls=known) as knows:
        sent = await send(f"https://localhost:{receiver.port}/")
        assert sent.detail.startswith("its certificate is not valid: ")
        assert receiver.requests == []
        sent = await knows(f"https://localhost:{receiver.port}/")
        assert sent.delivered, sent.detail
        sent = await knows(f"http://localhost:{receiver.port}/")
        assert (sent.status, sent.delivered) == (0, False)

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async def closes(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with listening(plain) as first, listening(closes) as second, sending() as send:
        sent = await send(f"https://127.0.0.1:{first}/")
        assert sent.detail == "TLS failed: the port may be one of http://"
        sent = await send(f"https://127.0.0.1:{second}/")
        assert sent.detail.startswith("cannot connect: ")
        sent = await send("https://2130706433/")
        assert sent.detail == "its URL has no host that can be connected to"


async def test_redirects_and_proxies_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as other:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        moved = b"HTTP/1.1 301 Moved\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n"
        async with receiving(lambda _: moved % other.url.encode()) as receiver, sending() as send:
            sent = await send(receiver.url)
            assert sent.status == 301
            assert sent.detail == "status 301, a redirect, which is not followed"
            receiver.answer = lambda _: b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"
            sent = await send(receiver.url)
            assert (sent.status, sent.detail) == (500, "status 500")
    assert other.requests == []


async def test_endless_answers_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    sent_bytes = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\n")
        while True:
            writer.write(bytes(16 * 1024))
            await writer.drain()
            sent_bytes += 16 * 1024

    monkeypatch.setattr(module, "_ANSWER_SECONDS", DEADLINE_SECONDS)
    async with listening(endless) as port, sending() as send:
        sent = await send(f"http://127.0.0.1:{port}/")
    assert sent.delivered
    assert (
        sent.detail
        == f"status 200; the rest of its answer after {MAX_ANSWER_BYTES} bytes is not read"
    )
    assert sent_bytes < 64 * 1024 * 1024  # what sockets hold


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"])
async def test_a_byte_at_a_time_ends_in_time(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        for byte in b"HTTP/1.1 200 OK\r\nx: " + b"a" * 10_000:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0.02)

    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.2)
    async with listening(drips) as port, sending(seconds=DEADLINE_SECONDS if head else 0.5) as send:
        sent = await send(f"http://127.0.0.1:{port}/")
    if head:
        assert sent.detail == "status 200; the rest of its answer after 0.2 s is not read"
    else:
        assert (sent.status, sent.detail) == (0, "no response in 0.5 s")


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000, b"\0" * 1000]
)
async def test_what_is_not_http_is_no_delivery(answer: bytes) -> None:
    async with receiving(lambda _: answer) as receiver, sending() as send:
        sent = await send(receiver.url)
    assert (sent.status, sent.detail) == (0, "it broke the connection, or does not speak HTTP")


async def test_nothing_listens() -> None:
    async with sending() as send:
        sent = await send("http://127.0.0.1:1/")
        assert sent.detail.startswith("cannot connect: Connect call failed")
        sent = await send("http://nowhere.invalid/")
        assert sent.detail == "its host has no address"


INSIDE = (
    *("127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]", "[64:ff9b::7f00:1]"),
    *("[2002:7f00:1::]", "224.0.0.1", "0x7f.1", "rebinds.example"),
)
"""What names and addresses inside look like; the last one had a public address before."""


async def hangs(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    for byte in b"HTTP/1.1 200 OK\r\nx: " + b"a" * 10_000:
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(0.05)


async def breaks_off(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\n")
    while True:
        writer.write(bytes(16 * 1024))
        await writer.drain()


def answers(head: bytes) -> Callable[[Any], bytes]:
    return lambda _: b"HTTP/1.1 " + head + b"\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("callbacks", [False, True], ids=["endpoints", "callbacks"])
async def test_bad_receivers_are_in_the_log_and_a_good_one_gets_all(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, callbacks: bool
) -> None:
    look_up = socket.getaddrinfo

    def changed(host: str, port: int, *more: Any) -> list[Any]:
        if host == "rebinds.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        return look_up(host, port, *more)

    monkeypatch.setattr(socket, "getaddrinfo", changed)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    # What may be called is one address, of which the others are not.
    own, url = ("127.0.0.2/32", "public"), await databases.migrated()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        other, inside = await enter(receiving()), await enter(receiving())
        good = await enter(receiving(lambda _: OK, host=OWN_HOST))
        moved = b"301 Moved\r\nlocation: " + other.url.encode()
        ports = {
            "no response in 1 s": [await enter(listening(one, OWN_HOST)) for one in (hangs, drips)],
            "it broke the connection, or does": [await enter(listening(breaks_off, OWN_HOST))],
            "status 500": [(await enter(receiving(answers(b"500 No"), host=OWN_HOST))).port],
            "status 301, a redirect": [
                (await enter(receiving(answers(moved), host=OWN_HOST))).port
            ],
            "cannot connect: ": [1],
        }
        bad = {
            f"http://{OWN_HOST}:{port}/": said for said, found in ports.items() for port in found
        }
        secret = await enter(receiving(tls=served, host=OWN_HOST))
        bad[f"https://{OWN_HOST}:{secret.port}/"] = "its certificate is not valid: "
        bad |= {f"https://{host}:{inside.port}/": NOT_ALLOWED for host in INSIDE}
        long = f"http://{OWN_HOST}:{await enter(listening(endless, OWN_HOST))}/"
        webhooks = await enter(webhook_stage(url, own, seconds=1.0))
        said = {}
        for one, what in {**bad, long: "; the rest of its answer after ", good.url: ""}.items():
            if callbacks:
                await webhooks.outbox.add(webhooks.database, OURS, COMPLETED, "resp_1", one)
                said[uuid5(NAMESPACE_URL, f"{OURS.tenant} {one}")] = f"callback {one}: ", what
            else:
                said[(await webhooks.endpoint(one))[0].id] = "", what
        if not callbacks:
            await webhooks.add()
        await webhooks.deliver()
        attempts = {one.endpoint: one for one in await webhooks.attempts()}
    assert len(good.requests) == 1
    assert (other.requests, inside.requests, secret.requests) == ([], [], [])
    assert attempts.keys() == said.keys()
    for endpoint, (begin, what) in said.items():
        found = attempts[endpoint]
        assert found.detail.startswith(begin) and what in found.detail, found
        ended = what == "" or what.startswith("; the rest")
        assert found.outcome == ("delivered" if ended else "retrying"), found
