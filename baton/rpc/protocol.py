"""The version of the protocol between Baton's processes, `baton.internal.v1`.

Both sides send theirs when they open Attach, Run and Place, and each checks the other's. A release
that changes the meaning of frames increments VERSION and still supports the previous version, so
that processes can be upgraded one after another.

Version 2: `EngineStep` has columns, stopping workers send `StreamHandedOver`, and routers queue
queries and report it with `Queued` and `Heartbeat`, to peers that support them.
"""

from collections.abc import Sequence
from typing import Protocol

from baton.errors import BatonError, Reason
from baton.internal.v1.protocol_pb2 import Hello
from baton.version import full_version

VERSION = 2
PAUSE = "pause"
"""Feature in the records of workers that accept the frames Pause and Resume."""


class Frame(Protocol):
    """A frame of Run or Place."""

    @property
    def hello(self) -> Hello: ...


def describe() -> str:
    """Return the version of this code and of its protocol in words, for `baton version`."""
    return f"baton {full_version()} (protocol {VERSION})"


def hello() -> Hello:
    """Return the first message of this process on a stream to another one."""
    return Hello(protocol_version=VERSION)


def check_hello(frames: Sequence[Frame], peer: str) -> int:
    """Check that a stream's first message begins with a Hello of a supported version.

    Returns the peer's version.

    Raises:
        BatonError: PROTOCOL_MISMATCH.
    """
    version = frames[0].hello.protocol_version if frames else 0
    check_version(version, peer)
    return version


def check_version(peer_version: int, peer: str, own_version: int = VERSION) -> None:
    """Check that the versions of this process and a peer differ by at most one.

    Args:
        peer_version: version that the peer sent; 0 if it sent none.
        peer: name of the peer, for the message.
        own_version: the version that this process speaks.

    Raises:
        BatonError: PROTOCOL_MISMATCH; the message names the side to upgrade.
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
