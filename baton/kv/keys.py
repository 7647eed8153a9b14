"""Names of KV blocks: equal tokens under an equal root have equal keys everywhere and permanently.

    key_i = SHA-256(tag ‖ key_{i-1} ‖ tokens_i as little-endian u32 ‖ extra_i)[:16]

The root takes the place of the key before the first block. Tags distinguish root, full and partial
block; a partial block also hashes its number of tokens. `extra_i` is empty for text. For each run
of placeholder tokens in the block, such as those of a picture, it has 44 bytes: the SHA-256 of what
stands for them, and as little-endian u32 the first one's position in the block, its position in the
run, and the number of them in the block. Golden vectors in the tests pin the format.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

KEY_BYTES = 16
DIGEST_BYTES = 32
"""Bytes of the digest of what stands for placeholder tokens."""

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


class PlaceholderRun(NamedTuple):
    """A run of equal tokens in a prompt that something else stands for, such as a picture."""

    offset: int
    """Position of the first one in the prompt."""
    length: int
    """Number of them, at least 1."""
    digest: bytes
    """SHA-256 of what stands for them, 32 bytes."""


def check_runs(runs: Sequence[PlaceholderRun], prompt_tokens: int) -> None:
    """Check the runs of a prompt, which are in order and do not overlap.

    Raises:
        ValueError: they do not fit into a prompt of so many tokens.
    """
    end = 0
    for run in runs:
        if len(run.digest) != DIGEST_BYTES:
            raise ValueError(f"a digest of {len(run.digest)} bytes: must have {DIGEST_BYTES}")
        if run.length < 1 or not end <= run.offset <= prompt_tokens - run.length:
            raise ValueError(
                f"{run.length} placeholder tokens at {run.offset}: must be in order, without "
                f"overlap, within the prompt of {prompt_tokens} tokens"
            )
        end = run.offset + run.length


def block_extra(runs: Sequence[PlaceholderRun], begin: int, end: int) -> bytes:
    """Return `extra_i` of a block: what stands for placeholder tokens in it, and where.

    Args:
        runs: of the prompt, in order.
        begin: position of the block's first token in the prompt.
        end: position after its last.
    """
    extra = b""
    for offset, length, digest in runs:
        first, behind = max(offset, begin), min(offset + length, end)
        if first < behind:
            extra += digest + struct.pack("<3I", first - begin, first - offset, behind - first)
    return extra


def full_block_key(previous: bytes, tokens: bytes, extra: bytes = b"") -> bytes:
    """Return the key of a full block from the key before it, its tokens' bytes and its extra."""
    return sha256(_FULL + previous + tokens + extra).digest()[:KEY_BYTES]


def partial_block_key(previous: bytes, tokens: bytes, extra: bytes = b"") -> bytes:
    """Return the key of a block that is not full; the arguments are those of `full_block_key`."""
    count = struct.pack("<I", len(tokens) // 4)
    return sha256(_PARTIAL + previous + count + tokens + extra).digest()[:KEY_BYTES]


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


def prompt_keys(
    root: bytes, tokens: Sequence[int], block_tokens: int, runs: Sequence[PlaceholderRun] = ()
) -> PromptKeys:
    """Return the keys of all blocks of a prompt; `runs` are its placeholder tokens, in order."""
    data = token_bytes(tokens)
    keys = full_block_keys(root, data, block_tokens, runs)
    at = len(keys) * block_tokens
    rest = data[4 * at :]
    if not rest:
        return PromptKeys(tuple(keys), None)
    extra = block_extra(runs, at, len(tokens))
    return PromptKeys(tuple(keys), partial_block_key(keys[-1] if keys else root, rest, extra))


def full_block_keys(
    root: bytes, tokens: bytes, block_tokens: int, runs: Sequence[PlaceholderRun] = ()
) -> list[bytes]:
    """Return the keys of the full blocks of a prompt, given as its tokens' bytes."""
    step = 4 * block_tokens
    keys = []
    key = root
    for end in range(step, len(tokens) + 1, step):
        extra = block_extra(runs, end // 4 - block_tokens, end // 4) if runs else b""
        key = full_block_key(key, tokens[end - step : end], extra)
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
