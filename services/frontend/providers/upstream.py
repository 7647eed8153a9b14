"""One provider's upstream: its keys and breakers, and requests with their retries."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

import aiohttp

from baton.errors import BatonError, Reason
from baton.host.networks import NOT_ALLOWED, AllowedNetworks
from baton.process.background import start_background
from baton.providers.api_headers import api_headers
from baton.providers.key_file import KeyUnreadableError, ProviderKey
from baton.providers.session import UpstreamSession
from baton.telemetry.logs import get_logger
from baton.tenancy.records.providers import Provider
from services.frontend.metrics import (
    UPSTREAM_ATTEMPTS,
    UPSTREAM_BREAKER_OPENED,
    UPSTREAM_RETRIES,
)
from services.frontend.providers.answer import BadAnswerError
from services.frontend.providers.breaker import Breaker, BreakerState
from services.frontend.providers.call import UpstreamCall
from services.frontend.providers.formats import FORMATS, UpstreamStream
from services.frontend.providers.hedging import HedgePolicy
from services.frontend.providers.refused import UpstreamFailure, status_failure
from services.frontend.providers.retry_budget import RetryBudget
from services.frontend.providers.sse import EventReader, StreamTooLongError
from services.frontend.workers.events import ProviderOutput

MAX_RETRIES = 2
"""Per request, within the budget of all."""
_FIRST_PAUSE_SECONDS = 0.05
_SPREAD_SECONDS = 5.0
"""Drawn for each client and added to its wait: they would else come back at once, as they left."""
_ERROR_BYTES = 16 * 1024
_ERROR_SECONDS = 2.0
_LINGER_SECONDS = 1.0
"""For the end of a response whose stream has ended; then its connection is closed, not reused."""
_RENEW = 0.9
"""Share of the time between two tokens after which its timer is set again, not for each token."""

log = get_logger(__name__)


class _UpstreamKey(NamedTuple):
    key: ProviderKey
    breaker: Breaker


class Upstream:
    """Runs requests at one upstream. Lives on the event loop; call `close` at the end.

    Args:
        provider: whose upstream it is.
        networks: where it may be.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        provider: Provider,
        networks: AllowedNetworks,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.provider = provider
        self._clock = clock
        self._format = FORMATS[provider.api]
        self._session = UpstreamSession(provider, networks)
        self._budget = RetryBudget()
        self.hedging = HedgePolicy()
        """When a second upstream is asked, too."""
        self._keys = [_UpstreamKey(ProviderKey(one), Breaker()) for one in provider.keys or ("",)]
        self._turn = 0
        self._endings: set[asyncio.Task[None]] = set()
        """Responses whose last bytes are read, so that their connections can be used again."""

    async def close(self) -> None:
        """Close all connections."""
        for task in self._endings:
            task.cancel()
        await self._session.close()

    async def run(self, call: UpstreamCall) -> UpstreamStream:
        """Run a request to its end; return its stream, with what the upstream counted.

        There are retries until the first output, within the provider's time for it.

        Raises:
            BatonError: it failed. Output that was passed on before is valid.
        """
        self._budget.add_request()
        self.hedging.add_request()
        began = self._clock()
        until = began + self.provider.first_token_seconds
        retries = 0
        while True:
            key = self._next_key()
            attempt = UpstreamAttempt(call, key.breaker, began)
            try:
                await self._attempt(attempt, key, until)
                return attempt.stream
            except UpstreamFailure as failure:
                if attempt.started:
                    raise self._lost(failure) from None
                now = self._clock()
                pause = max(_FIRST_PAUSE_SECONDS * 2**retries, self._wait_seconds(now))
                if not (
                    failure.retry
                    and (len(self._keys) > 1 or not failure.of_key)
                    and retries < MAX_RETRIES
                    and now + pause < until
                    and self._budget.take()
                ):
                    if failure.counts and failure.wait is None:
                        failure.wait = self._client_seconds(now)
                    raise failure.error(self.provider.id) from None
                retries += 1
                UPSTREAM_RETRIES.labels(self.provider.id).inc()
                await asyncio.sleep(pause)

    async def _attempt(self, attempt: "UpstreamAttempt", key: "_UpstreamKey", until: float) -> None:
        """Run one attempt, and tell its breaker.

        Raises:
            UpstreamFailure: it failed.
        """
        name, breaker, outcome = self.provider.id, key.breaker, "cancelled"
        try:
            await self._send(attempt, key.key, until)
            outcome = "ok"
            breaker.succeeded()
        except UpstreamFailure as failure:
            now = self._clock()
            if failure.wait:
                breaker.block(now, failure.wait)
            if not failure.counts:
                outcome = "rejected"
                breaker.succeeded()
                raise
            outcome, before = "failed", breaker.state
            breaker.failed(now)
            if before is not BreakerState.OPEN:  # else many that began before it opened
                log.warning("provider.attempt.failed", provider=name, reason=failure.what)
            if before is BreakerState.CLOSED and breaker.state is BreakerState.OPEN:
                UPSTREAM_BREAKER_OPENED.labels(name).inc()
                log.error("provider.breaker.opened", provider=name, reason=failure.what)
            raise
        finally:
            if outcome == "cancelled":
                breaker.abandoned()
            UPSTREAM_ATTEMPTS.labels(name, outcome).inc()

    def _next_key(self) -> _UpstreamKey:
        """Return the next key whose breaker permits an attempt, and begin it.

        Raises:
            BatonError: none does.
        """
        now, count = self._clock(), len(self._keys)
        for at in range(count):
            found = self._keys[(self._turn + at) % count]
            if found.breaker.try_begin(now):
                self._turn = (self._turn + at + 1) % count
                return found
        raise self._closed_to_requests(now)

    def require_open(self) -> None:
        """Check that a request may begin now.

        Raises:
            BatonError: OVERLOADED: no key's breaker permits an attempt.
        """
        now = self._clock()
        if self._wait_seconds(now) > 0:
            raise self._closed_to_requests(now)

    def _closed_to_requests(self, now: float) -> BatonError:
        return BatonError(
            Reason.OVERLOADED,
            f"provider {self.provider.id} failed repeatedly, or asked for a pause, and gets no "
            "requests for a moment",
            retry_after=self._client_seconds(now),
        )

    def _client_seconds(self, now: float) -> float | None:
        """Return the seconds for which a client is asked to wait; None: it need not."""
        wait = min(one.breaker.client_seconds(now) for one in self._keys)
        return wait + random.uniform(0, _SPREAD_SECONDS) if wait else None

    def _wait_seconds(self, now: float) -> float:
        """Return the seconds until an attempt may begin with any of the keys; 0: now."""
        return min(one.breaker.wait_seconds(now) for one in self._keys)

    async def _send(self, attempt: "UpstreamAttempt", key: ProviderKey, until: float) -> None:
        try:
            secret = key.value()
        except KeyUnreadableError as error:
            log.error("provider.key.unreadable", provider=self.provider.id, error=str(error))
            raise UpstreamFailure("has no usable key: tell the operator", retry=False) from None
        loop = asyncio.get_running_loop()
        response = None
        try:
            async with asyncio.timeout_at(loop.time() + until - self._clock()) as timer:
                response = await self._session.post(
                    self._format.path,
                    attempt.call.body,
                    api_headers(self.provider, secret),
                )
                await self._read(attempt, response, timer)
        except TimeoutError:
            what = "between two tokens" if attempt.started else "before the first token"
            raise UpstreamFailure(f"took too long {what}", retry=not attempt.started) from None
        except aiohttp.ClientConnectorCertificateError:
            raise UpstreamFailure("has no valid certificate", retry=False) from None
        except aiohttp.ClientConnectorError as error:
            if error.errno == NOT_ALLOWED:
                raise UpstreamFailure(
                    "is not in providers.allowed_networks: tell the operator", retry=False
                ) from None
            raise UpstreamFailure("cannot be reached") from None
        except (aiohttp.ClientError, OSError):
            raise UpstreamFailure("broke the connection") from None
        except BadAnswerError as error:
            raise UpstreamFailure(f"sent what is no answer: {error}") from None
        except StreamTooLongError as error:
            raise UpstreamFailure(f"sent too much: {error}", retry=False) from None
        finally:
            if response is not None:
                self._end(response, attempt)

    async def _read(
        self, attempt: "UpstreamAttempt", response: aiohttp.ClientResponse, timer: asyncio.Timeout
    ) -> None:
        if response.status != 200 or response.content_type != "text/event-stream":
            body = b""
            with suppress(TimeoutError, aiohttp.ClientError):
                async with asyncio.timeout(_ERROR_SECONDS):
                    body = await response.content.read(_ERROR_BYTES)
            raise status_failure(response.status, response.headers.get("retry-after"), body)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise UpstreamFailure("sent a compressed answer, which was not asked for", retry=False)
        loop, limit = asyncio.get_running_loop(), self.provider.token_seconds
        events, stream, content = EventReader(), attempt.stream, response.content
        on_output, readable = attempt.call.on_output, attempt.call.readable
        while not stream.done:
            piece = await content.readany()
            if not piece:
                break
            found: list[ProviderOutput] = []
            failure: Exception | None = None
            try:
                for data in events.feed(piece):
                    found += stream.read(data)
            except (BadAnswerError, StreamTooLongError, UpstreamFailure) as error:
                failure = error  # after the output before it
            if not found and failure is None:
                continue
            now, ends = loop.time(), timer.when() or 0.0
            if not attempt.started or ends - now < _RENEW * limit:
                timer.reschedule(now + limit)
            if found and not attempt.started:
                attempt.started = True
                attempt.breaker.answered()
                self.hedging.add_first_token(self._clock() - attempt.began)
            on_output(found)
            if failure is not None:
                raise failure
            paused = readable()
            if paused is not None:
                timer.reschedule(None)
                await paused
                timer.reschedule(loop.time() + limit)
        if not stream.complete:
            raise UpstreamFailure("ended its stream before the answer")

    def _end(self, response: aiohttp.ClientResponse, attempt: "UpstreamAttempt") -> None:
        """Let a connection be used again if its response ends, or close it."""
        if response.content.at_eof():
            response.release()
        elif not attempt.stream.done:
            response.close()
        else:
            task = start_background(_finish(response), "end an upstream's response")
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    def _lost(self, failure: UpstreamFailure) -> BatonError:
        """Return the error of a stream that fails after its first output."""
        return BatonError(
            Reason.STREAM_LOST,
            f"provider {self.provider.id} {failure.what}: send the request again",
        )


class UpstreamAttempt:
    """The state of one attempt."""

    def __init__(self, call: UpstreamCall, breaker: Breaker, began: float) -> None:
        self.call = call
        self.began = began
        """When its request began, maybe with an attempt before this one."""
        self.breaker = breaker
        self.stream = call.stream()
        self.started = False
        """Whether output was passed on."""


async def _finish(response: aiohttp.ClientResponse) -> None:
    """Read the end of a response. What follows the end of its stream is not read."""
    try:
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(_LINGER_SECONDS):
                if not await response.content.readany():
                    response.release()
    finally:
        response.close()
