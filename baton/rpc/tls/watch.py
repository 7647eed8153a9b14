"""Reloads certificates that are replaced while a process runs."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from baton.rpc.tls.expiry import Life, Reminder, read_lives
from baton.rpc.tls.files import CertificateFiles, Signature
from baton.settings import StartupError
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Counter, Gauge

log = get_logger(__name__)

EXPIRY = Gauge(
    "baton_tls_certificate_expiry_timestamp_seconds",
    "Expiry of the certificate that this process presents, as Unix time: `internal` to other "
    "processes of the cluster, `public` to clients, `etcd` to etcd.",
    ["certificate"],
)
CA_EXPIRY = Gauge(
    "baton_tls_ca_expiry_timestamp_seconds",
    "Expiry of the first authority in that certificate's chain to expire, as Unix time. Peers "
    "reject the certificate from then on.",
    ["certificate"],
)
RELOADS = Counter(
    "baton_tls_reloads_total",
    "Reloads after a certificate file changed, by result: `loaded`, or `failed` (the previous "
    "files stay in use).",
    ["certificate", "result"],
)
_OWN_EVENTS = ("tls.certificate.expiring", "tls.certificate.expired")
_CA_EVENTS = ("tls.ca.expiring", "tls.ca.expired")

T = TypeVar("T")


class CertificateWatch(Generic[T]):
    """Keeps an object made from a certificate's files up to date. One event loop owns it.

    Changed files are loaded once two checks in a row find them the same, all together and only if
    they can be used: after a partial write, or with a certificate without its key, the previous
    ones stay in use.

    Args:
        label: name of the certificate in metrics and logs.
        files: files of the certificate.
        make: makes the object from them.

    Raises:
        StartupError: they cannot be used.
    """

    def __init__(self, label: str, files: CertificateFiles, make: Callable[[], T]) -> None:
        self._label = label
        self._files = files
        self._make = make
        self._changed: Signature | None = None
        """Signature of changed files that are not loaded yet."""
        self._refused: Signature | None = None
        """Signature of files that cannot be used."""
        files.check()
        self._taken = files.signature()
        self.current = make()
        self._reminders: list[tuple[tuple[str, str], Reminder]] = []
        self._know(*read_lives(files))

    @asynccontextmanager
    async def running(self, seconds: float) -> AsyncIterator[None]:
        """Check the files every `seconds`."""
        task = asyncio.create_task(self._run(seconds), name=f"certificate-{self._label}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, seconds: float) -> None:
        while True:
            self._remind()
            await asyncio.sleep(seconds)
            self.look()

    def look(self) -> None:
        """Load files that changed since they were loaded, and have not changed since the last
        check."""
        try:
            now = self._files.signature()
        except OSError as error:
            now = ()
            if self._changed != now:
                log.warning("tls.files.missing", certificate=self._label, error=str(error))
        before, self._changed = self._changed, now
        if now in (self._taken, self._refused, ()) or now != before:
            return
        try:
            self._files.check()
            made, lives = self._make(), read_lives(self._files)
            if self._files.signature() != now:
                return  # changed while being read
            self.current = made
        except (StartupError, OSError) as error:
            self._refused = now
            RELOADS.labels(self._label, "failed").inc()
            log.error("tls.reload.failed", certificate=self._label, error=str(error))
            return
        self._taken, self._refused = now, None
        self._know(*lives)
        RELOADS.labels(self._label, "loaded").inc()
        log.info("tls.reload.done", certificate=self._label, expires=lives[0].until)

    def _know(self, own: Life, authority: Life | None) -> None:
        self._reminders = [(_OWN_EVENTS, Reminder(own))]
        EXPIRY.labels(self._label).set(own.ends)
        if authority is not None:
            self._reminders.append((_CA_EVENTS, Reminder(authority)))
            CA_EXPIRY.labels(self._label).set(authority.ends)

    def _remind(self) -> None:
        """Log, once an hour, that the certificate or its authority expires soon or has expired."""
        now = time.time()
        for (expiring, expired), reminder in self._reminders:
            if not reminder.is_due(now):
                continue
            life = reminder.life
            left = life.ends - now
            said = {"certificate": self._label, "expires": life.until, "file": str(life.file)}
            if left > 0:
                log.warning(expiring, seconds_left=round(left), **said)
            else:
                log.error(expired, **said)
