"""Meaning of the bytes of a KV block."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256

LAYOUT_ID_BYTES = 16


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

    @cached_property
    def layout_id(self) -> bytes:
        """16 bytes: SHA-256 over the canonical JSON of all fields, truncated."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return sha256(b"baton.layout.1\0" + canonical.encode()).digest()[:LAYOUT_ID_BYTES]
