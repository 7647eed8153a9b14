"""The version of the protocol between Baton's processes, `baton.internal.v1`.

Both sides say theirs when they open Attach, Run and Place, and each checks the other's. A release
that changes what frames mean raises VERSION and still speaks with the version before it, so that
processes can be upgraded one after another.

Version 2: `EngineStep` has columns, workers that stop send `StreamHandedOver`, and routers let
queries wait, which they say by `Queued` and `Heartbeat`: with peers that know them.
"""

from collections.abc import Sequence
from typing import Protocol

from baton.errors import BatonError, Reason
from baton.internal.v1.protocol_pb2 import Hello
from baton.version import full_version

VERSION = 2
PAUSE = "pause"
"""Feature in the records of workers that take the frames Pause and Resume."""


class Frame(Protocol):
    """A frame of Run or Place."""

    @property
    def hello(self) -> Hello: ...


def describe() -> str:
    """Return in words which code this is and what it speaks, for `baton version`."""
    return f"baton {full_version()} (protocol {VERSION})"


def hello() -> Hello:
    """Return what this process says first on a stream to another one."""
    return Hello(protocol_version=VERSION)


def check_hello(frames: Sequence[Frame], peer: str) -> int:
    """Check the frames of a stream's first message: they begin with a Hello of a fitting version.

    Returns the peer's version.

    Raises:
        BatonError: PROTOCOL_MISMATCH.
    """
    version = frames[0].hello.protocol_version if frames else 0
    check_version(version, peer)
    return version


def check_version(peer_version: int, peer: str, own_version: int = VERSION) -> None:
    """Check that this process and a peer speak versions next to each other.

    Args:
        peer_version: what the peer said; 0 if it said nothing.
        peer: who it is, for the message.
        own_version: the version that this process speaks.

    Raises:
        BatonError: PROTOCOL_MISMATCH; the message says which side to upgrade.
    """
    if peer_version and abs(peer_version - own_version) <= 1:
        return
    said = f"version {peer_version}" if peer_version else "no protocol version"
    older = peer if peer_version < own_version else "this process"
    raise BatonError(
        Reason.PROTOCOL_MISMATCH,
        f"{peer} speaks {said}, this process speaks {max(1, own_version - 1)} to "
        f"{own_version + 1}: upgrade {older}",
    )
