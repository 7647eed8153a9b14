"""The delivery of events: claims what is due, attempts it, and stores what came of it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from baton.conversations.ids import milliseconds_of, text_of
from baton.errors import BatonError
from baton.postgres.connecting import StateError
from baton.process.background import cancel_all, start_background
from baton.telemetry.logs import get_logger
from baton.webhooks import metrics
from baton.webhooks.deliveries import DeliveryStore
from baton.webhooks.events import EVENT
from baton.webhooks.places import DeliveryPlaces, EventReceiver, PlaceLimits
from baton.webhooks.records import ENDPOINT, ClaimedDelivery, SendResult, WebhookAttempt
from baton.webhooks.schedule import retry_delay
from baton.webhooks.secrets import WebhookSecrets, signed_headers

if TYPE_CHECKING:
    from baton.webhooks.sender import WebhookSender  # aiohttp, which is loaded if it is used

POLL_SECONDS = 1.0
_PAUSE_SECONDS = 0.05
"""Between two claims of a process that finds something: attempts end one by one."""
MAX_ATTEMPTS = PlaceLimits().all
"""Attempts in progress of a process."""
_RECEIVERS_AT_ONCE = 1000
"""Of which a process chooses those that get places."""
_SLOW_SHARE = 0.25
"""Of the longest time of an attempt: a receiver that takes longer is slow."""
_LEASE_MARGIN_SECONDS = 30.0
_UPKEEP_SECONDS = 60.0
_DAY_SECONDS = 24 * 3600.0

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """How long deliveries are attempted and remembered."""

    attempt_seconds: float
    retry_seconds: float
    retention_days: int


class WebhookDelivery:
    """Delivers events until cancelled. One per process, on the event loop.

    Args:
        store: of deliveries.
        sender: reaches receivers.
        secrets: of endpoints.
        policy: limits of time.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        store: DeliveryStore,
        sender: "WebhookSender",
        secrets: WebhookSecrets,
        policy: DeliveryPolicy,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._sender = sender
        self._secrets = secrets
        self._policy = policy
        self._clock = clock
        self._places = DeliveryPlaces(policy.attempt_seconds * _SLOW_SHARE)
        self._running: dict[asyncio.Task[None], ClaimedDelivery] = {}
        self._ended = asyncio.Event()
        self._kept_up = float("-inf")

    async def run(self) -> None:
        """Deliver what is due; when cancelled, what is in progress is due again later."""
        try:
            while True:
                found = False
                if self._store.available:
                    try:
                        found = await self.step()
                    except StateError as error:
                        log.warning("webhook.delivery.failed", error=str(error))
                await self._wait(found)
        finally:
            await cancel_all(self._running)

    async def step(self) -> bool:
        """Begin what is due and has a place; return whether any was begun."""
        now = self._clock()
        if not 0 <= now - self._kept_up < _UPKEEP_SECONDS:
            self._kept_up = now
            await self._keep_up(now)
        if self._places.full:
            return False
        waiting = await self._store.receivers(now, _RECEIVERS_AT_ONCE)
        places = self._places.allocate(waiting, monotonic())
        if not places:
            return False
        lease = now + self._policy.attempt_seconds + _LEASE_MARGIN_SECONDS
        due = await self._store.claim(now, lease, places)
        for claimed in due:
            self._begin(claimed)
        return bool(due)

    async def idle(self) -> None:
        """Return once no attempt is in progress."""
        while self._running:
            await asyncio.wait(list(self._running))

    def _begin(self, claimed: ClaimedDelivery) -> None:
        task = start_background(self._deliver(claimed), "delivery of an event")
        self._running[task] = claimed
        self._places.begin(
            claimed, EventReceiver(claimed.scope.tenant, claimed.endpoint), monotonic()
        )
        task.add_done_callback(self._done)
        metrics.ACTIVE.set(len(self._running))

    async def _wait(self, found: bool) -> None:
        """Wait until there may be something to begin."""
        seconds = _PAUSE_SECONDS if found else POLL_SECONDS
        self._ended.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_PAUSE_SECONDS)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._places.end(self._running.pop(task))
        metrics.ACTIVE.set(len(self._running))
        self._ended.set()

    async def _deliver(self, claimed: ClaimedDelivery) -> None:
        try:
            if not claimed.url:  # the endpoint was deleted meanwhile
                await self._store.drop(claimed)
                return
            began = self._clock()
            sent = await self._send(claimed)
            self._places.learn(claimed, sent.seconds)
            outcome, due = self._judge(claimed, sent)
            metrics.ATTEMPTS.labels(outcome).inc()
            metrics.SECONDS.observe(sent.seconds)
            entry = WebhookAttempt(
                *(claimed.endpoint, claimed.event, claimed.attempt, claimed.type),
                *(datetime.fromtimestamp(began, UTC), sent.seconds, sent.status, outcome),
                _detail(claimed, sent),
            )
            await self._store.finish(claimed, entry, due)
        except (StateError, BatonError) as error:  # due again when the lease ends
            log.warning("webhook.delivery.failed", error=str(error))

    async def _send(self, claimed: ClaimedDelivery) -> SendResult:
        tenant, project = claimed.scope
        if claimed.secrets is None:
            secrets = [await self._secrets.of_project(tenant, project)]
        else:
            secrets = await self._secrets.open(tenant, claimed.secrets)
        if not secrets:
            return SendResult(0, "its secret cannot be opened any more: rotate it", 0.0)
        event = text_of(EVENT, claimed.event)
        headers = signed_headers(secrets, event, claimed.body, self._clock())
        return await self._sender.send(claimed.url, claimed.body.encode(), headers)

    def _judge(self, claimed: ClaimedDelivery, sent: SendResult) -> tuple[str, float | None]:
        """Return the outcome, and when the next attempt is due; None: there is none."""
        if sent.delivered:
            return "delivered", None
        now = self._clock()
        due = now + retry_delay(claimed.attempt)
        if due - milliseconds_of(claimed.event) / 1000 <= self._policy.retry_seconds:
            return "retrying", due
        log.warning(
            "webhook.delivery.given_up",
            tenant=claimed.scope.tenant,
            target=text_of(ENDPOINT, claimed.endpoint),
            event_type=claimed.type,
            attempt=claimed.attempt,
            reason=_detail(claimed, sent),
        )
        return "given_up", None

    async def _keep_up(self, now: float) -> None:
        count, oldest = await self._store.backlog()
        metrics.WAITING.set(count)
        metrics.OLDEST.set(0 if oldest is None else milliseconds_of(oldest) / 1000)
        await self._store.forget(now - self._policy.retention_days * _DAY_SECONDS)


def _detail(claimed: ClaimedDelivery, sent: SendResult) -> str:
    """Return what came of an attempt: of a callback, which no endpoint describes, with its URL."""
    return sent.detail if claimed.secrets else f"callback {claimed.url}: {sent.detail}"
