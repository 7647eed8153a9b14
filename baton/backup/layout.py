"""The layout of a backup: a header in one line of JSON, then sealed chunks of records.

    header, in one line
    sealed chunk 0, empty: tells whether the passphrase is right
    then, per chunk: its length in 4 bytes, big-endian, and the sealed chunk

A chunk is a list of names and values in MessagePack. Names are those of etcd without the cluster's
prefix. The last chunk is sealed as such.
"""

import msgspec

from baton.backup.sealing import KeyDerivation

LAYOUT = 1
"""Version of this layout; a release reads all up to its own."""
FORMAT = "baton-backup"
MAX_HEADER_BYTES = 1 << 16
MAX_CHUNK_BYTES = 8 << 20
"""Largest sealed chunk. etcd's values have 1.5 MiB at most (`--max-request-bytes`)."""
CHUNK_BYTES = 4 << 20
"""A chunk with this many bytes of values is closed."""
LENGTH_BYTES = 4

NamedValue = tuple[str, bytes]
"""A record: its name within the cluster, `tenancy/keys/key_0123456789abcdef`, and its value."""


class BackupHeader(msgspec.Struct, kw_only=True, frozen=True):
    """What a backup is of. Not secret; every chunk is bound to it."""

    format: str = FORMAT
    layout: int = LAYOUT
    release: str
    """Release that wrote it."""
    id: str
    """Random, 16 hexadecimal digits."""
    cluster: str
    revision: int
    """Revision of etcd that was read."""
    epoch: str
    """Epoch of the directory at this revision; empty: there was none."""
    created_seconds: int
    """Seconds since the Unix epoch."""
    counts: dict[str, int]
    """Records by their prefix, as of `baton.cluster.keys.lasting`."""
    kdf: KeyDerivation

    @property
    def records(self) -> int:
        """Number of all records."""
        return sum(self.counts.values())


class HeaderLayout(msgspec.Struct, frozen=True):
    """What every layout's header has."""

    format: str
    layout: int
    release: str = "unknown"


encode_header = msgspec.json.encode
"""Returns a header as JSON without a line break."""
encode_chunk = msgspec.msgpack.encode
"""Returns the bytes of a list of records."""
decode_chunk = msgspec.msgpack.Decoder(list[NamedValue]).decode
"""Returns the records of a chunk; raises msgspec.DecodeError."""
