"""Meaning of the bytes of a KV block."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256

LAYOUT_ID_BYTES = 16


class GroupKind(StrEnum):
    """What a layer reads of the tokens before the one that it computes."""

    FULL = "full"
    """All of them."""
    WINDOW = "window"
    """Those of a sliding window, which ends with the token itself."""
    CHUNK = "chunk"
    """Those of the token's own chunk: attention is local to chunks of the sequence."""
    STATE = "state"
    """None: a recurrent state after the token before it stands for all of them."""


@dataclass(frozen=True)
class KvGroup:
    """Layers that need the same blocks of a prefix. Each block has one object per group.

    Raises:
        ValueError: a field is out of range; the text names it.
    """

    kind: GroupKind
    block_bytes: int
    """Bytes of one block in these layers; for a state, the bytes of the state at a block's end."""
    span_tokens: int = 0
    """Tokens of the window (the token itself included) or of a chunk; 0 for the other kinds."""

    def __post_init__(self) -> None:
        bounded = self.kind in (GroupKind.WINDOW, GroupKind.CHUNK)
        if bounded != (self.span_tokens > 0) or self.span_tokens < 0:
            wanted = "above 0" if bounded else "0"
            raise ValueError(f"span_tokens of a {self.kind} group must be {wanted}")
        if self.block_bytes <= 0:
            raise ValueError(f"block_bytes of a {self.kind} group must be above 0")


@dataclass(frozen=True)
class Layout:
    """All properties that determine what the bytes of a KV block mean.

    Two workers whose layouts differ in any field never exchange bytes: every key's root contains
    `layout_id`.
    """

    engine: str
    """Name and block format version of the engine, for example `torch/1`."""
    backend: str
    """`cpu` or `cuda`."""
    isa: str
    """Instruction set on which the bytes depend; empty: none."""
    dtype: str
    """Element type, for example `float32`."""
    layers: int
    kv_heads: int
    head_size: int
    block_tokens: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    groups: tuple[KvGroup, ...] = ()
    """Groups of layers, in the order of `ObjectId.group`, those of full attention first; all have
    `block_tokens`. Empty: one group of full attention, whose objects are group 0.

    Raises:
        ValueError: another kind precedes full attention.
    """

    def __post_init__(self) -> None:
        full = [group.kind is GroupKind.FULL for group in self.groups]
        if full != sorted(full, reverse=True):
            raise ValueError("groups of full attention must come first")

    @cached_property
    def layout_id(self) -> bytes:
        """16 bytes: SHA-256 over the canonical JSON of all fields, truncated.

        Without groups they are left out: layouts of one full group keep the id that they had before
        there were groups.
        """
        fields = asdict(self)
        if not self.groups:
            del fields["groups"]
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return sha256(b"baton.layout.1\0" + canonical.encode()).digest()[:LAYOUT_ID_BYTES]
