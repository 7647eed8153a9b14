"""Whether a provider can be used from this machine, without a frontend."""

import asyncio
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from baton.host.networks import NOT_ALLOWED, AllowedNetworks
from baton.providers.api_headers import api_headers
from baton.providers.key_file import KeyUnreadableError, ProviderKey
from baton.providers.session import UpstreamSession
from baton.tenancy.records.providers import Provider, ProviderModel

_MAX_BYTES = 4 * 1024 * 1024
_NO_LIST = (404, 405, 501)
_PATHS = {"openai": "/chat/completions", "anthropic": "/messages"}


class ProviderFinding(NamedTuple):
    """The result of one part of a check."""

    part: str
    """`dns`, the reference of a key, or with it the name of a model."""
    ok: bool
    result: str
    """Never has a key, nor anything that the upstream wrote."""


async def check_upstream(
    provider: Provider, networks: AllowedNetworks, seconds: float
) -> list[ProviderFinding]:
    """Resolve the host, and with each key list the models, or ask each for a token.

    Args:
        provider: what is checked.
        networks: where it may be.
        seconds: the longest time of each part.
    """
    found = [await _resolve(provider, seconds)]
    if not found[0].ok:
        return found
    session = UpstreamSession(provider, networks)
    try:
        for reference in provider.keys or ("",):
            found += await _with_key(provider, session, reference, seconds)
    finally:
        await session.close()
    return found


async def _resolve(provider: Provider, seconds: float) -> ProviderFinding:
    parts = urlsplit(provider.url)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            infos = await loop.getaddrinfo(parts.hostname, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        return ProviderFinding("dns", False, f"{parts.hostname} has no answer in {seconds:g} s")
    except OSError as error:
        return ProviderFinding("dns", False, f"{parts.hostname} has no address: {error.strerror}")
    addresses = sorted({str(info[4][0]) for info in infos})
    return ProviderFinding("dns", True, f"{parts.hostname} is {', '.join(addresses)}")


async def _with_key(
    provider: Provider, session: UpstreamSession, reference: str, seconds: float
) -> list[ProviderFinding]:
    part = reference or "no key"
    try:
        headers = api_headers(provider, ProviderKey(reference).value())
    except KeyUnreadableError as error:
        return [ProviderFinding(part, False, str(error).partition(": ")[2])]
    status, listed = await _ask(session.get("/models", headers), seconds)
    if status in _NO_LIST:
        return [
            await _one_token(provider, session, f"{part} {model.name}", model, headers, seconds)
            for model in provider.models
        ]
    if isinstance(status, str) or status != 200:
        return [ProviderFinding(part, False, _said(status))]
    names = {str(one.get("id")) for one in _entries(listed)}
    missing = [one.upstream_name for one in provider.models if one.upstream_name not in names]
    if missing:
        return [ProviderFinding(part, False, f"the upstream does not list {', '.join(missing)}")]
    return [ProviderFinding(part, True, f"accepted; {len(provider.models)} models listed")]


async def _one_token(
    provider: Provider,
    session: UpstreamSession,
    part: str,
    model: ProviderModel,
    headers: dict[str, str],
    seconds: float,
) -> ProviderFinding:
    current = provider.api == "openai" and "max_tokens" not in provider.quirks
    body = {
        "model": model.upstream_name,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_completion_tokens" if current else "max_tokens": 1,
    }
    asked = session.post(_PATHS[provider.api], msgspec.json.encode(body), headers)
    status, _ = await _ask(asked, seconds)
    if status == 200:
        return ProviderFinding(part, True, "answered with a token; models are not listed")
    return ProviderFinding(part, False, _said(status))


async def _ask(asking: Any, seconds: float) -> tuple[int | str, bytes]:
    """Return the status and body of a response, or what went wrong."""
    try:
        async with asyncio.timeout(seconds):
            response = await asking
            try:
                return response.status, await response.content.read(_MAX_BYTES)
            finally:
                response.close()
    except TimeoutError:
        return f"no answer in {seconds:g} s", b""
    except aiohttp.ClientConnectorCertificateError as error:
        return f"its certificate is not valid: {error.certificate_error}", b""
    except aiohttp.ClientSSLError:
        return "TLS failed: the port may be one of http://", b""
    except aiohttp.ClientConnectorError as error:
        if error.errno == NOT_ALLOWED:
            return "its address is not in providers.allowed_networks, or public without TLS", b""
        return f"cannot connect: {error.strerror}", b""
    except (aiohttp.ClientError, OSError):
        return "it broke the connection, or does not speak HTTP", b""


def _said(status: int | str) -> str:
    """Return what a status means."""
    match status:
        case str():
            return status
        case 401 | 402 | 403:
            return f"the key is not accepted (status {status})"
        case 404:
            return "the path or the model is not known (status 404)"
        case 429 | 529:
            return f"too many requests (status {status}): try again later"
        case _ if 300 <= status < 400:
            return f"a redirect (status {status}), which is not followed: check the URL"
        case _:
            return f"status {status}"


def _entries(body: bytes) -> list[dict[str, Any]]:
    """Return the models of a list; none if it is not one."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    data = found.get("data") if isinstance(found, dict) else None
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
