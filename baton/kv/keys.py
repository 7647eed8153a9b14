"""Names of KV blocks: equal tokens under an equal root have equal keys everywhere and permanently.

    key_i = SHA-256(tag ‖ key_{i-1} ‖ tokens_i as little-endian u32 ‖ extra_i)[:16]

The root takes the place of the key before the first block. Tags distinguish root, full and partial
block; a partial block also hashes its number of tokens. `extra_i` is empty today: it is reserved
for images and for a salt that starts after a shared system prompt. Golden vectors in the tests pin
the format.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

KEY_BYTES = 16

_UNPACKED_AT_ONCE = 64
_UNPACKERS = [struct.Struct(f"{KEY_BYTES}s" * count) for count in range(_UNPACKED_AT_ONCE + 1)]
"""Unpackers by number of keys: five times as fast as slices."""

_ROOT = b"baton.kv.1/root\0"
_FULL = b"baton.kv.1/full\0"
_PARTIAL = b"baton.kv.1/part\0"


def chain_root(
    model: str, weights_digest: bytes, layout_id: bytes, adapter_digest: bytes, salt: bytes
) -> bytes:
    """Return the name of the empty prefix: 16 bytes over the five fields, each length-prefixed.

    Args:
        model: the model's registered name.
        weights_digest: digest of the weights' bytes.
        layout_id: `Layout.layout_id`.
        adapter_digest: digest of the adapter's bytes; empty for the base model.
        salt: the tenant's secret; empty where the model's cache is shared.
    """
    digest = sha256(_ROOT)
    for field in (model.encode(), weights_digest, layout_id, adapter_digest, salt):
        digest.update(struct.pack("<I", len(field)))
        digest.update(field)
    return digest.digest()[:KEY_BYTES]


def token_bytes(tokens: Sequence[int]) -> bytes:
    """Return token ids as little-endian u32.

    Raises:
        OverflowError: an id is negative or above 2**32 - 1.
    """
    if sys.byteorder == "big":
        return struct.pack(f"<{len(tokens)}I", *tokens)
    return array("I", tokens).tobytes()


def full_block_key(previous: bytes, tokens: bytes) -> bytes:
    """Return the key of a full block from the key before it and its tokens' bytes."""
    return sha256(_FULL + previous + tokens).digest()[:KEY_BYTES]


def partial_block_key(previous: bytes, tokens: bytes) -> bytes:
    """Return the key of a block that is not full, from the key before it and its tokens' bytes."""
    count = struct.pack("<I", len(tokens) // 4)
    return sha256(_PARTIAL + previous + count + tokens).digest()[:KEY_BYTES]


@dataclass(frozen=True, slots=True)
class PromptKeys:
    """Keys of a prompt's blocks."""

    full: tuple[bytes, ...]
    """Keys of the full blocks, in chain order."""
    partial: bytes | None
    """Key of the last block if it is partial; None where the prompt ends on a block boundary."""

    @property
    def all(self) -> tuple[bytes, ...]:
        """Return the full keys, then the partial one if any: one key per block of the prompt."""
        return self.full if self.partial is None else (*self.full, self.partial)


def prompt_keys(root: bytes, tokens: Sequence[int], block_tokens: int) -> PromptKeys:
    """Return the keys of all blocks of a prompt."""
    data = token_bytes(tokens)
    keys = full_block_keys(root, data, block_tokens)
    rest = data[len(keys) * 4 * block_tokens :]
    last = keys[-1] if keys else root
    return PromptKeys(tuple(keys), partial_block_key(last, rest) if rest else None)


def full_block_keys(root: bytes, tokens: bytes, block_tokens: int) -> list[bytes]:
    """Return the keys of the full blocks of a prompt, given as its tokens' bytes."""
    step = 4 * block_tokens
    keys = []
    key = root
    for end in range(step, len(tokens) + 1, step):
        key = full_block_key(key, tokens[end - step : end])
        keys.append(key)
    return keys


def pack(keys: Sequence[bytes]) -> bytes:
    """Return keys packed into one `bytes` field."""
    return b"".join(keys)


def unpack(packed: bytes) -> list[bytes]:
    """Return the keys that are packed in one `bytes` field.

    Raises:
        ValueError: the length is not a multiple of 16.
    """
    if len(packed) % KEY_BYTES:
        raise ValueError(f"packed keys have {len(packed)} bytes: must be a multiple of {KEY_BYTES}")
    keys: list[bytes] = []
    at = 0
    while at < len(packed):
        count = min(_UNPACKED_AT_ONCE, (len(packed) - at) // KEY_BYTES)
        keys += _UNPACKERS[count].unpack_from(packed, at)
        at += count * KEY_BYTES
    return keys
