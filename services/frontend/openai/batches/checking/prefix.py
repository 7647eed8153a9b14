"""What the prompts of lines begin with, so that lines that begin alike run one after the other."""

from zlib import crc32

import msgspec

_BORDERS = tuple(128 << doubled for doubled in range(10))
"""Bytes of a prompt's beginning: 128 to 64 KiB."""
_DIGEST_BYTES = 4


class _PromptFields(msgspec.Struct):
    """The fields of all endpoints that become the prompt, in the order in which they do so."""

    model: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    chat_template_kwargs: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_PromptFields).decode


def prompt_prefix(body: bytes) -> bytes:
    """Return digests of what a prompt begins with, one for each border that it reaches.

    Two bodies with the same first bytes of a prompt have the same first digests; sorted by their
    digests, bodies lie next to those with which they share most. Digests are of JSON as it was
    sent: equal prompts in different JSON have different ones, which costs order alone.

    Args:
        body: a line's body, a JSON object.

    Returns:
        Up to 40 bytes: CRC-32 of the first 128, 256, … 65,536 bytes of the fields that become the
        prompt.
    """
    text = b"\0".join(msgspec.structs.astuple(_decode(body)))
    digests, digest, start = b"", 0, 0
    for border in _BORDERS:
        if border > len(text):
            break
        digest = crc32(memoryview(text)[start:border], digest)
        digests += digest.to_bytes(_DIGEST_BYTES)
        start = border
    return digests
