"""Adapters that a worker can serve: a table of versions by name."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from baton.engine.lora.adapter import Adapter
from baton.errors import BatonError, Reason

LINGER_SECONDS = 30.0
"""How long a version that was removed is still found: requests for it may be on their way."""


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    """One version of an adapter."""

    name: str
    """What clients request."""
    digest: bytes
    adapter: Adapter | None = None
    """Its files; None: the engine began with it, under its name."""

    @property
    def key(self) -> str:
        """Its key in the engine: of its version, as two may be in use at once."""
        return self.name if self.adapter is None else f"{self.name}@{self.digest.hex()}"


class KnownAdapters:
    """Adapters by name. Lives on the event loop.

    Args:
        fixed: digests of the adapters with which the engine began, by name.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, fixed: Mapping[str, bytes], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._current = {name: KnownAdapter(name, digest) for name, digest in fixed.items()}
        self._fixed = frozenset(fixed)
        self._gone: dict[tuple[str, bytes], tuple[KnownAdapter, float]] = {}

    @property
    def current(self) -> Mapping[str, KnownAdapter]:
        """The adapters that new requests may name; a live view."""
        return self._current

    def is_fixed(self, name: str) -> bool:
        """Return whether the engine began with an adapter of this name, which stays."""
        return name in self._fixed

    def put(self, adapter: Adapter) -> None:
        """Add an adapter, or replace the one of its name."""
        self.drop(adapter.name)
        self._current[adapter.name] = KnownAdapter(adapter.name, adapter.digest, adapter)

    def drop(self, name: str) -> None:
        """Remove an adapter, if it exists; it is found by its digest for a while."""
        known = self._current.pop(name, None)
        now = self._clock()
        self._gone = {k: v for k, v in self._gone.items() if v[1] > now}
        if known is not None:
            self._gone[name, known.digest] = known, now + LINGER_SECONDS

    def find(self, model: str, name: str, digest: bytes = b"") -> KnownAdapter:
        """Return the adapter that a request names.

        Args:
            model: the worker's model, for the error.
            name: of the adapter.
            digest: the version that the request began with; empty: the current one.

        Raises:
            BatonError: MODEL_NOT_FOUND.
        """
        known = self._current.get(name)
        if known is not None and digest in (b"", known.digest):
            return known
        lingering, until = self._gone.get((name, digest), (None, 0.0))
        if lingering is not None and until > self._clock():
            return lingering
        raise BatonError(
            Reason.MODEL_NOT_FOUND,
            f"this worker's model {model} has no adapter {name!r}"
            + (" of the request's version" if known is not None else ""),
            field="adapter",
        )
