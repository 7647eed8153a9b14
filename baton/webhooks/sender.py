"""One attempt: a request to a receiver, which may be anything, and what came of it."""

import asyncio
from collections.abc import Mapping
from functools import partial
from ssl import SSLContext
from time import monotonic

import aiohttp

from baton import __version__
from baton.host.networks import NOT_ALLOWED, AllowedNetworks
from baton.webhooks.records import SendResult
from baton.webhooks.resolver import ReceiverResolver

MAX_ANSWER_BYTES = 64 * 1024
_ANSWER_SECONDS = 1.0
"""For an answer's body, which says nothing: with it, the connection can be used again."""
_KEEP_ALIVE_SECONDS = 15.0
_MAX_HEAD_BYTES = 16 * 1024
_REDIRECT, _ERROR = 300, 400


class WebhookSender:
    """Sends requests to receivers. Runs on the event loop; call `close` at the end.

    Follows no redirect; the proxy, netrc and cookies of the environment are not used; the address
    is checked when it is connected to, after DNS; 64 KiB of an answer are read, and no more of its
    head than 16 KiB a line.

    Args:
        networks: where receivers may be.
        seconds: the longest time of an attempt.
        connections: the most at a time.
        tls: certificates of receivers; None: the system's authorities.
    """

    def __init__(
        self,
        networks: AllowedNetworks,
        seconds: float,
        connections: int,
        tls: SSLContext | None = None,
    ) -> None:
        self._networks = networks
        self._seconds = seconds
        self._resolver = ReceiverResolver()
        self._sessions = {
            scheme: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=connections,
                    keepalive_timeout=_KEEP_ALIVE_SECONDS,
                    resolver=self._resolver,
                    ssl=tls or True,
                    socket_factory=partial(networks.make_socket, encrypted=scheme == "https"),
                ),
                timeout=aiohttp.ClientTimeout(total=None),  # `send` has its own
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                read_bufsize=MAX_ANSWER_BYTES // 2,
                max_line_size=_MAX_HEAD_BYTES,
                max_field_size=_MAX_HEAD_BYTES,
                headers={
                    "user-agent": f"baton/{__version__}",
                    "accept-encoding": "identity",
                    "content-type": "application/json",
                },
            )
            for scheme in ("https", "http")
        }

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> SendResult:
        """Post a body, and return what came of it. Never raises, except when it is cancelled."""
        began = monotonic()
        status, detail = await self._send(url, body, headers)
        return SendResult(status, detail, monotonic() - began)

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        await self._resolver.close()

    async def _send(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        session = self._sessions["https" if url.startswith("https://") else "http"]
        try:
            async with asyncio.timeout(self._seconds):
                response = await session.post(
                    url, data=body, headers=headers, allow_redirects=False
                )
        except TimeoutError:
            return 0, f"no response in {self._seconds:g} s"
        except aiohttp.ClientConnectorCertificateError as error:
            return 0, f"its certificate is not valid: {_line(error.certificate_error)}"
        except aiohttp.ClientConnectorDNSError:
            return 0, "its host has no address"
        except aiohttp.ClientSSLError:
            return 0, "TLS failed: the port may be one of http://"
        except aiohttp.ClientConnectorError as error:
            if error.errno == NOT_ALLOWED:
                return 0, (
                    f"not connected: its address is not in {self._networks.setting}, or public "
                    "without TLS"
                )
            return 0, f"cannot connect: {_line(error.strerror or 'it closed the connection')}"
        except aiohttp.InvalidURL:
            return 0, "its URL has no host that can be connected to"
        except (aiohttp.ClientError, OSError, ValueError):
            return 0, "it broke the connection, or does not speak HTTP"
        try:
            return response.status, _said(response.status) + await _read(response)
        finally:
            response.close()


async def _read(response: aiohttp.ClientResponse) -> str:
    """Read the rest of an answer, within limits; return what is odd about it."""
    read = 0
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            while chunk := await response.content.readany():
                read += len(chunk)
                if read > MAX_ANSWER_BYTES:
                    return f"; the rest of its answer after {MAX_ANSWER_BYTES} bytes is not read"
    except TimeoutError:
        return f"; the rest of its answer after {_ANSWER_SECONDS:g} s is not read"
    except (aiohttp.ClientError, OSError):
        return "; its answer breaks off"
    return ""


def _said(status: int) -> str:
    """Return what a status means."""
    if _REDIRECT <= status < _ERROR:
        return f"status {status}, a redirect, which is not followed"
    return f"status {status}"


def _line(text: object) -> str:
    return str(text).partition("\n")[0][:200]
