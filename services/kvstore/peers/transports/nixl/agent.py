"""A NIXL agent: writes from this store's memory into that of stores on other hosts."""

import ctypes
import importlib
import logging
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from services.kvstore.peers.transports.nixl.endpoint import Endpoint, NixlError, name_in

LIBRARIES = ("nixl_cu12", "nixl_cu13")
"""The first one installed is used; both work without CUDA."""
_MEMORY = "DRAM"


class NixlAgent:
    """One agent of the NIXL library, and the checks that the library leaves to its user.

    Owned by NixlThread; every call is made on that one thread. Metadata is checked before it is
    loaded: NIXL drops a peer with truncated metadata, and cannot add its name again. A write is
    released only once it is complete: an earlier release looks like success and stops nothing.

    Args:
        name: returned by `agent_name`.
        memory: the arena's file, mapped and writable. It stays mapped for the lifetime of the
            process.

    Raises:
        NixlError: NIXL is not installed, or does not work here.
    """

    def __init__(self, name: str, memory: memoryview) -> None:
        library = _load()
        self._errors = _errors_of(library)
        try:
            # Its own progress thread would spin for the lifetime of the process.
            config = library.nixl_agent_config(enable_prog_thread=False)
            self._agent: Any = library.nixl_agent(name, config)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            self._agent.register_memory([(address, memory.nbytes, 0, "")], _MEMORY)
            metadata = self._agent.get_agent_metadata()
        except self._errors as error:
            raise NixlError(f"cannot create the agent: {error}") from error
        if name_in(metadata) != name:
            raise NixlError("this release of NIXL writes metadata in an unknown format")
        self.endpoint = Endpoint(name, metadata, address, memory.nbytes)
        self._remote: dict[str, Endpoint] = {}

    def add(self, remote: Endpoint) -> None:
        """Add another agent; no effect if it is known already.

        Raises:
            NixlError: it cannot be added.
        """
        if self._remote.get(remote.agent) == remote:
            return
        try:
            self._agent.add_remote_agent(remote.metadata)
        except self._errors as error:
            raise NixlError(f"cannot add {remote.agent}: {error}") from error
        self._remote[remote.agent] = remote

    def remove(self, name: str) -> None:
        """Remove an agent; no error for one that is unknown."""
        if self._remote.pop(name, None) is not None:
            try:
                self._agent.remove_remote_agent(name)
            except self._errors as error:
                raise NixlError(f"cannot remove {name}: {error}") from error

    def write(self, name: str, pieces: Sequence[tuple[int, int, int]]) -> "NixlWrite":
        """Start a write to another agent's arena.

        Args:
            name: the agent.
            pieces: (offset here, offset there, length), each from the arena files' beginnings.

        Raises:
            NixlError: nothing was started.
        """
        remote = self._remote.get(name)
        if remote is None:
            raise NixlError(f"{name} is unknown")
        merged = list(_merged(pieces))
        ours = [(self.endpoint.address + here, length, 0) for here, _, length in merged]
        theirs = [(remote.address + there, length, 0) for _, there, length in merged]
        try:
            handle = self._agent.initialize_xfer(
                "WRITE", self._list(ours), self._list(theirs), name
            )
        except self._errors as error:
            raise NixlError(f"cannot write to {name}: {error}") from error
        write = NixlWrite(self._agent, handle, self._errors)
        write.begin()
        return write

    def notify(self, name: str, message: bytes) -> None:
        """Send another agent a notification.

        Raises:
            NixlError: it cannot be sent.
        """
        try:
            self._agent.send_notif(name, message)
        except self._errors as error:
            raise NixlError(f"cannot notify {name}: {error}") from error

    def progress(self) -> list[tuple[str, bytes]]:
        """Let writes progress, in both directions; return notifications with their agents' names.

        Raises:
            NixlError: NIXL has failed.
        """
        try:
            told: dict[str, list[bytes]] = self._agent.get_new_notifs()
        except self._errors as error:
            raise NixlError(f"NIXL failed: {error}") from error
        return [(name, message) for name, messages in told.items() for message in messages]

    def _list(self, pieces: list[tuple[int, int, int]]) -> Any:
        return self._agent.get_xfer_descs(np.array(pieces, np.uint64), _MEMORY)


class NixlWrite:
    """One write in progress. Owned by NixlThread, which polls it until it is complete."""

    def __init__(self, agent: Any, handle: Any, errors: tuple[type[Exception], ...]) -> None:
        self._agent = agent
        self._handle = handle
        self._errors = errors
        self._state = "PROC"

    def begin(self) -> None:
        """Start it. If that fails it has ended, as `poll` reports."""
        self._ask(self._agent.transfer)

    def poll(self) -> bool | None:
        """Return None while it is in progress, then whether every byte arrived."""
        if self._state == "PROC":
            self._ask(self._agent.check_xfer_state)
        if self._state == "PROC":
            return None
        if self._handle is not None:
            self._agent.release_xfer_handle(self._handle)
            self._handle = None
        return self._state == "DONE"

    def _ask(self, question: Any) -> None:
        try:
            self._state = question(self._handle)
        except self._errors as error:
            self._state = f"ERR {error}"


def _merged(pieces: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield pieces, with those adjacent on both sides joined: long ones are faster."""
    here = there = length = 0
    for next_here, next_there, size in sorted(pieces):
        if length and next_here == here + length and next_there == there + length:
            length += size
            continue
        if length:
            yield here, there, length
        here, there, length = next_here, next_there, size
    if length:
        yield here, there, length


def _load() -> ModuleType:
    raises = logging.raiseExceptions
    for name in LIBRARIES:
        try:
            library = importlib.import_module(name)
        except ImportError as error:
            reason = error
            continue
        # On import it takes over the process's logging, and prints to standard output.
        logging.raiseExceptions = raises
        log = logging.getLogger("nixl")
        log.handlers.clear()
        log.propagate = True
        log.setLevel(logging.WARNING)
        return library
    raise NixlError(f"NIXL is not installed: pip install 'baton-serving[nixl]' ({reason})")


def _errors_of(library: ModuleType) -> tuple[type[Exception], ...]:
    """Return the exceptions that the library raises, which have no common base."""
    names = vars(importlib.import_module(f"{library.__name__}._bindings"))
    own = [names[name] for name in names if name.startswith("nixl") and name.endswith("Error")]
    return (RuntimeError, *own)
