"""HTTP to one upstream: pooled and bounded connections that follow no redirect."""

from functools import partial

import aiohttp

from baton import __version__
from baton.host.networks import AllowedNetworks
from baton.tenancy.records.providers import Provider

CONNECT_SECONDS = 10.0
"""For TCP and TLS together."""
_KEEP_ALIVE_SECONDS = 30.0
_MAX_HEAD_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024


class UpstreamSession:
    """A pool of connections to one upstream. Runs on the event loop; call `close` at the end.

    The proxy, netrc and cookies of the environment are not used, and answers are not decompressed.

    Args:
        provider: whose upstream it is.
        networks: where it may be.
    """

    def __init__(self, provider: Provider, networks: AllowedNetworks) -> None:
        self._provider = provider
        encrypted = provider.url.startswith("https://")
        connector = aiohttp.TCPConnector(
            limit=provider.connections,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            socket_factory=partial(networks.make_socket, encrypted=encrypted),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=_READ_BYTES,
            max_line_size=_MAX_HEAD_BYTES,
            max_field_size=_MAX_HEAD_BYTES,
            headers={"user-agent": f"baton/{__version__}", "accept-encoding": "identity"},
        )

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """Send a request; return the response once its head is there.

        Args:
            path: follows the provider's URL.
            body: JSON.
            headers: those of the API, with a key.

        Raises:
            aiohttp.ClientError: there is no response.
            OSError: likewise.
        """
        all_headers = {"content-type": "application/json", "accept": "text/event-stream"}
        return await self._session.post(
            self._provider.url + path,
            data=body,
            headers=all_headers | headers,
            allow_redirects=False,
        )

    async def get(self, path: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """Ask for what is at a path; return the response once its head is there.

        Args and raises: as of `post`.
        """
        return await self._session.get(
            self._provider.url + path, headers=headers, allow_redirects=False
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
