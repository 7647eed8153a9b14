"""`baton providers check`: what a provider's upstream lacks, said without its key."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from baton.host.networks import AllowedNetworks
from baton.providers.check import ProviderFinding, check_upstream
from baton.tenancy.records.providers import Provider, ProviderModel
from tests.support.doubles.upstream import Exchange, ScriptedUpstream

SECRET = "sk-upstream-0123456789abcdef"
LISTED = {"data": [{"id": "gpt-4o"}, {"id": "other"}]}


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as made:
        yield made


async def check(url: str, path: Path, networks: str = "127.0.0.0/8", **fields: Any) -> Any:
    key = path / "key"
    if not key.exists():
        key.write_text(SECRET)
        key.chmod(0o600)
    model = ProviderModel(name="gpt", upstream="gpt-4o", context_tokens=100, output_tokens=10)
    given = {"id": "acme", "url": url, "http": True, "keys": (f"file:{key}",), "models": (model,)}
    found = await check_upstream(Provider(**(given | fields)), AllowedNetworks([networks]), 1.0)
    assert SECRET not in str(found)
    return found


def refuses(code: int, body: Any = SECRET, **headers: str) -> Callable[[Exchange], Awaitable[None]]:
    return lambda exchange: exchange.refuse(code, body, **headers)


async def test_a_list(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer = refuses(200, LISTED)
    dns, key = await check(upstream.url, tmp_path)
    assert dns == ProviderFinding("dns", True, "127.0.0.1 is 127.0.0.1")
    assert (key.part, key.ok) == (f"file:{tmp_path}/key", True)
    (exchange,) = upstream.exchanges
    assert (exchange.method, exchange.path) == ("GET", "/v1/models")
    assert exchange.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (refuses(401), "the key is not accepted (status 401)"),
        (refuses(429), "too many requests (status 429): try again later"),
        (refuses(500), "status 500"),
        (
            refuses(302, location="http://169.254.169.254/"),
            "a redirect (status 302), which is not followed: check the URL",
        ),
        (refuses(200, {"data": []}), "the upstream does not list gpt-4o"),
        (refuses(200, "<html>"), "the upstream does not list gpt-4o"),
        (lambda exchange: exchange.gone.wait(), "no answer in 1 s"),
    ],
)
async def test_what_fails(
    upstream: ScriptedUpstream, tmp_path: Path, answer: Any, result: str
) -> None:
    upstream.answer = answer
    _, key = await check(upstream.url, tmp_path)
    assert (key.ok, key.result) == (False, result)
    assert len(upstream.exchanges) == 1


@pytest.mark.parametrize(
    ("api", "path", "body", "code"),
    [
        ("openai", "/v1/chat/completions", {"max_completion_tokens": 1}, 200),
        ("anthropic", "/v1/messages", {"max_tokens": 1}, 404),
    ],
)
async def test_a_token_where_there_is_no_list(
    upstream: ScriptedUpstream, tmp_path: Path, api: str, path: str, body: Any, code: int
) -> None:
    upstream.answer = lambda one: one.refuse(404 if one.method == "GET" else code, {})
    _, model = await check(upstream.url, tmp_path, api=api)
    assert (model.part.endswith("/key gpt"), model.ok) == (True, code == 200)
    asked = upstream.exchanges[1]
    assert asked.path == path
    assert asked.body == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "Hi"}],
        **body,
    }


async def test_addresses_tls_and_keys(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    (dns,) = await check("https://nobody.invalid/v1", tmp_path)
    assert (dns.ok, "nobody.invalid has no address" in dns.result) == (False, True)
    _, key = await check(upstream.url, tmp_path, networks="public")
    assert key.result.startswith("its address is not in providers.allowed_networks")
    _, key = await check(upstream.url.replace("http:", "https:"), tmp_path)
    assert not key.ok
    (tmp_path / "key").chmod(0o644)
    _, key = await check(upstream.url, tmp_path)
    assert key.result == "all users can read or write the file; use mode 0600"
    assert not upstream.exchanges


async def test_tls_that_hangs(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        _, key = await check(f"https://127.0.0.1:{port}/v1", tmp_path)
    assert (key.ok, key.result) == (False, "no answer in 1 s")
