"""HTTP for sources: bounded, without surprises.

Every read has a deadline. A redirect leads to https, or from http to http, five times at most; the
token is sent to the source's own origin alone, and never in clear text over a network. Cookies are
neither kept nor sent. Errors name a host and a file, never a URL: signed URLs are as good as
passwords.
"""

import logging
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from time import monotonic, time

import httpx2

from baton.models.errors import PullError, TransientError
from baton.models.limits import PullLimits
from baton.models.secrets import AccessToken
from baton.models.sources.source import FileBody

_REDIRECTS = (301, 302, 303, 307, 308)
_BUSY = (408, 425, 429)
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class SourceClient:
    """Requests to one source. May be used by several threads; owned by the source.

    Args:
        limits: of the download.
        base: any URL of the source; a token goes to its origin.
        token: for the source, if it needs one.
        denied: what to do if the source denies access; a clause.

    Raises:
        PullError: the token would be sent in clear text.
    """

    def __init__(
        self, limits: PullLimits, base: str, token: AccessToken | None = None, denied: str = ""
    ) -> None:
        self._limits = limits
        self._token = token
        self._origin = httpx2.URL(base).origin
        self._denied = denied
        if token is not None and self._origin.scheme != "https" and not _is_loopback(base):
            raise PullError(
                f"{self._origin.host} would get the token in clear text: use an https:// address, "
                "or unset the token."
            )
        # At INFO it logs whole URLs, signatures and all.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        self._client = httpx2.Client(
            timeout=httpx2.Timeout(limits.read_seconds, connect=limits.connect_seconds),
            limits=httpx2.Limits(max_connections=limits.parallel + 1),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            headers={"accept-encoding": "identity", "user-agent": "baton-models"},
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def read(self, url: str, name: str) -> bytes | None:
        """Return a short document; None: it does not exist.

        Raises:
            PullError: it cannot be read, or is too long.
            TransientError: this attempt failed.
        """
        with self._response("GET", url, {}, name) as response:
            if response.status_code in (404, 410):
                return None
            self._check_status(response, name)
            data = bytearray()
            began = monotonic()
            for piece in _pieces(response, self._limits):
                data += piece
                if monotonic() - began > self._limits.slow_seconds:
                    raise TransientError(
                        f"{response.url.host} sent no more than {len(data)} bytes in "
                        f"{self._limits.slow_seconds:g} s"
                    )
                if len(data) > self._limits.max_list_bytes:
                    raise PullError(
                        f"{name} at {response.url.host} has more than "
                        f"{self._limits.max_list_bytes} bytes."
                    )
            return bytes(data)

    def size(self, url: str, name: str) -> int:
        """Return the bytes that a file has.

        Raises:
            PullError: it does not exist, or the server does not say.
            TransientError: this attempt failed.
        """
        with self._response("HEAD", url, {}, name) as response:
            self._check_status(response, name)
            length = _length(response)
            if length is None:
                raise PullError(f"{response.url.host} does not say how many bytes {name} has.")
            return length

    @contextmanager
    def body(
        self, url: str, name: str, offset: int, size: int, headers: Mapping[str, str] | None = None
    ) -> Iterator[FileBody]:
        """Request a file's bytes.

        Args:
            url: of the file.
            name: what errors call it.
            offset: the first byte that is needed.
            size: of the whole file, by the list.
            headers: further ones.

        Raises:
            PullError: it does not exist, access is denied, or it has another size.
            TransientError: this attempt failed.
        """
        sent = dict(headers or {})
        if offset:
            sent["range"] = f"bytes={offset}-"
        with self._response("GET", url, sent, name) as response:
            if response.status_code == 416:
                raise PullError(
                    f"{response.url.host} has no byte {offset} of {name}, which has {size} by the "
                    "list: the file changed; run the command again."
                )
            self._check_status(response, name)
            begin = self._begin(response, name, offset, size)
            yield FileBody(begin, _pieces(response, self._limits))

    @contextmanager
    def _response(
        self, method: str, url: str, headers: Mapping[str, str], name: str
    ) -> Iterator[httpx2.Response]:
        """Yield a response that is no redirect, its body unread."""
        at = _parsed(url, name)
        for _ in range(self._limits.redirects + 1):
            sent = dict(headers)
            if self._token is not None and at.origin == self._origin:
                sent["authorization"] = self._token.header()
            with _failures(at.host, self._limits):
                request = self._client.build_request(method, at, headers=sent)
                response = self._client.send(request, stream=True)
            try:
                if response.status_code not in _REDIRECTS:
                    yield response
                    return
                at = _next(at, response, name)
            finally:
                response.close()
        raise PullError(f"{name} is redirected more than {self._limits.redirects} times.")

    def _check_status(self, response: httpx2.Response, name: str) -> None:
        status, host = response.status_code, response.url.host
        if status in (200, 206):
            if response.headers.get("content-encoding", "identity") != "identity":
                raise PullError(
                    f"{host} compresses {name} although it was asked not to: its digest cannot be "
                    "checked."
                )
            return
        if status in (401, 403):
            told = f": {self._denied}" if self._denied else "."
            raise PullError(f"{host} denies access to {name} (HTTP {status}){told}")
        if status in (404, 410):
            raise PullError(f"{host} does not have {name} (HTTP {status}).")
        if status in _BUSY or status >= 500:
            raise TransientError(f"{host} answers HTTP {status}", _retry_after(response))
        raise PullError(f"{host} answers HTTP {status} for {name}.")

    def _begin(self, response: httpx2.Response, name: str, offset: int, size: int) -> int:
        """Return the position of a body's first byte.

        Raises:
            PullError: the whole file has another size than `size`.
        """
        begin, total = 0, _length(response)
        if response.status_code == 206:
            found = _RANGE.fullmatch(response.headers.get("content-range", ""))
            begin = int(found[1]) if found else -1
            if begin != offset:
                raise PullError(
                    f"{response.url.host} was asked for {name} from byte {offset}, and sends "
                    f"another part of it: {response.headers.get('content-range', '')!r}."
                )
            total = int(found[3]) if found and found[3] != "*" else None
        if total is not None and total != size:
            raise PullError(
                f"{response.url.host} says that {name} has {total} bytes, and the list says "
                f"{size}: the file changed, or is not the one that was listed."
            )
        return begin


def _pieces(response: httpx2.Response, limits: PullLimits) -> Iterator[bytes]:
    with _failures(response.url.host, limits):
        yield from response.iter_raw()


@contextmanager
def _failures(host: str, limits: PullLimits) -> Iterator[None]:
    """Say what failed, without URLs."""
    try:
        yield
    except httpx2.ConnectTimeout as error:
        raise TransientError(
            f"{host} accepts no connection within {limits.connect_seconds:g} s"
        ) from error
    except httpx2.TimeoutException as error:
        raise TransientError(f"{host} sent nothing for {limits.read_seconds:g} s") from error
    except httpx2.ConnectError as error:
        if _is_untrusted(error):
            raise PullError(
                f"The certificate of {host} cannot be verified: set SSL_CERT_FILE to the "
                "authority that signed it."
            ) from error
        raise TransientError(f"{host} cannot be reached") from error
    except httpx2.ProxyError as error:
        raise TransientError(f"the proxy to {host} failed") from error
    except httpx2.RemoteProtocolError as error:
        raise TransientError(f"{host} ended the connection too early") from error
    except httpx2.TransportError as error:
        raise TransientError(f"the connection to {host} broke") from error


def _is_untrusted(error: BaseException | None) -> bool:
    """Return whether a certificate that could not be verified is the cause of an error."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _next(at: httpx2.URL, response: httpx2.Response, name: str) -> httpx2.URL:
    """Return where a redirect leads.

    Raises:
        PullError: nowhere, or where it may not.
    """
    where = response.headers.get("location", "")
    try:
        target = at.join(where) if where else None
    except (httpx2.InvalidURL, ValueError):
        target = None
    if target is None or not target.host:
        raise PullError(f"{at.host} redirects {name} to no address.")
    if target.userinfo:
        raise PullError(f"{at.host} redirects {name} to an address with a password.")
    if target.scheme != "https" and (target.scheme, at.scheme) != ("http", "http"):
        raise PullError(
            f"{at.host} redirects {name} from {at.scheme} to {target.scheme}://{target.host}, "
            "which is not followed: only https is."
        )
    return target


def _parsed(url: str, name: str) -> httpx2.URL:
    try:
        return httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise PullError(f"The address of {name} is not a URL.") from error


def _length(response: httpx2.Response) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _retry_after(response: httpx2.Response) -> float:
    """Return the seconds that a server asks to wait; 0: it does not."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:6])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, TypeError):
        return 0.0


def _is_loopback(url: str) -> bool:
    host = httpx2.URL(url).host
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
