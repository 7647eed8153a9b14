"""An engine's adapters by key."""

from collections.abc import Collection
from itertools import count
from typing import Any, NamedTuple

from vllm.lora.request import LoRARequest

from baton.engine.lora.adapter import Adapter, read_files
from baton.engine.lora.limits import AdapterLimits
from baton.engine.vllm.adapters.ranks import RankAdapters

_NO_FILES = "/nonexistent"
"""Where vLLM would look for an adapter that has no slot: it never reads files by itself."""


class LoadedAdapter(NamedTuple):
    """An adapter that was read."""

    number: int
    """vLLM's number for it."""
    read: Any
    """From `RankAdapters.read`."""


class AdapterTable:
    """Adapters with slots. Owned by the engine's thread, except `load`.

    Args:
        ranks: the slots.
        limits: which adapters are added while the engine serves; None: none.
    """

    def __init__(self, ranks: RankAdapters, limits: AdapterLimits | None) -> None:
        self.limits = limits
        self._ranks = ranks
        self._size = 0 if limits is None else limits.slots
        self._requests: dict[str, LoRARequest] = {}
        self._fixed: set[str] = set()
        self._numbers = count(1)

    @property
    def keys(self) -> Collection[str]:
        """Keys of the adapters that can be used; a live view."""
        return self._requests.keys()

    def request(self, key: str) -> LoRARequest | None:
        """Return how vLLM names an adapter; None: there is none of that key."""
        return self._requests.get(key)

    def load(self, adapter: Adapter) -> LoadedAdapter:
        """Read an adapter; any thread may call it.

        Raises:
            AdapterError: as of `Engine.load_adapter`.
        """
        number = next(self._numbers)
        return LoadedAdapter(number, self._ranks.read(number, read_files(adapter)))

    def add_fixed(self, adapter: Adapter) -> None:
        """Add an adapter that the engine begins with, which stays.

        Raises:
            AdapterError: as of `load`.
        """
        self._put(adapter.name, self.load(adapter))
        self._fixed.add(adapter.name)

    def add(self, key: str, loaded: LoadedAdapter) -> None:
        """Add an adapter, as of `Engine.add_adapter`.

        Raises:
            ValueError: as documented there.
        """
        if key in self._requests:
            raise ValueError(f"adapter {key} was added already")
        if len(self._requests) - len(self._fixed) >= self._size:
            raise ValueError(f"all {self._size} slots have adapters: remove one first")
        self._put(key, loaded)

    def remove(self, key: str) -> None:
        """Remove an adapter that no sequence uses.

        Raises:
            KeyError: none of that key was added.
        """
        if key in self._fixed:
            raise KeyError(key)
        self._ranks.remove(self._requests.pop(key).lora_int_id)

    def _put(self, key: str, loaded: LoadedAdapter) -> None:
        try:
            self._ranks.put(loaded.read)
        except BaseException:
            self._ranks.remove(loaded.number)
            raise
        self._requests[key] = LoRARequest(key, loaded.number, _NO_FILES)
