"""Files from which a tokenizer is read, and the digest that names them.

Workers have them next to their weights and serve them to frontends (WorkerService.GetTokenizer).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from baton.internal.v1.worker_pb2 import (
    TOKENIZER_FILE_CHAT_TEMPLATE,
    TOKENIZER_FILE_CONFIG,
    TOKENIZER_FILE_TOKENIZER,
    GetTokenizerResponse,
    TokenizerFile,
)

MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of all files of a tokenizer together."""
CHUNK_BYTES = 1024 * 1024

_NAMES = {
    TOKENIZER_FILE_TOKENIZER: "tokenizer.json",
    TOKENIZER_FILE_CONFIG: "tokenizer_config.json",
    TOKENIZER_FILE_CHAT_TEMPLATE: "chat_template.jinja",
}
"""File names in a checkpoint. They are fixed, so that names are never sent."""
MORE_TEMPLATES = "additional_chat_templates"
"""Folder of additional chat templates, in checkpoints that have more than chat_template.jinja, and
the member of tokenizer_config.json in which they are sent: frontends of older releases support no
more files.
"""
TOOL_TEMPLATE = "tool_use"
"""The additional template that is used, for conversations with tools."""


@dataclass(frozen=True)
class TokenizerFiles:
    """Bytes of a tokenizer's files; None for one that does not exist."""

    tokenizer: bytes
    config: bytes | None = None
    chat_template: bytes | None = None

    @classmethod
    def read(cls, directory: Path) -> "TokenizerFiles":
        """Read a checkpoint's files.

        Raises:
            OSError: one cannot be read, or there is no tokenizer.json.
            ValueError: together they are longer than 64 MiB, or tokenizer_config.json is not an
                object to which a template could be added.
        """
        paths = [directory / name for name in _NAMES.values()]
        of_tools = directory / MORE_TEMPLATES / f"{TOOL_TEMPLATE}.jinja"
        size = sum(path.stat().st_size for path in (*paths, of_tools) if path.exists())
        if size > MAX_BYTES:
            raise ValueError(
                f"the tokenizer's files in {directory} have {size} bytes; at most {MAX_BYTES} "
                "can be served"
            )
        tokenizer, *others = paths
        config, template = (path.read_bytes() if path.exists() else None for path in others)
        if of_tools.exists():
            config = _with_template(config or b"{}", of_tools.read_text())
        return cls(tokenizer.read_bytes(), config, template)

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(len(data) for _, data in self._present())

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 over number, length and bytes of each file that exists: 32 bytes."""
        digest = sha256(b"baton.tokenizer.1\0")
        for file, data in self._present():
            digest.update(file.to_bytes(4, "little") + len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.digest()

    def chunks(self) -> Iterator[GetTokenizerResponse]:
        """Yield the files in pieces of at most CHUNK_BYTES; an empty file is one empty piece."""
        for file, data in self._present():
            for start in range(0, max(1, len(data)), CHUNK_BYTES):
                yield GetTokenizerResponse(file=file, data=data[start : start + CHUNK_BYTES])

    def _present(self) -> Iterator[tuple[TokenizerFile.ValueType, bytes]]:
        named = zip(_NAMES, (self.tokenizer, self.config, self.chat_template), strict=True)
        return ((file, data) for file, data in named if data is not None)


def _with_template(config: bytes, of_tools: str) -> bytes:
    """Return tokenizer_config.json with the template of conversations with tools.

    Raises:
        ValueError: it is not a JSON object.
    """
    read = json.loads(config)
    if not isinstance(read, dict):
        raise ValueError("tokenizer_config.json is not a JSON object")
    read[MORE_TEMPLATES] = {TOOL_TEMPLATE: of_tools}
    return json.dumps(read, ensure_ascii=False, sort_keys=True).encode()


class TokenizerAssembly:
    """Assembles files from chunks. Holds at most as many bytes as were announced.

    Args:
        size: bytes of all files, as the model's card states.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._received = 0
        self._files: dict[int, bytearray] = {}

    def add(self, piece: GetTokenizerResponse) -> None:
        """Add the next chunk.

        Raises:
            ValueError: there are more bytes than announced, or the chunk is of an unknown file.
        """
        self._received += len(piece.data)
        if self._received > min(self._size, MAX_BYTES):
            raise ValueError(f"received more than {min(self._size, MAX_BYTES)} bytes")
        if piece.file not in _NAMES:
            raise ValueError(f"unknown file {piece.file}")
        self._files.setdefault(piece.file, bytearray()).extend(piece.data)

    def verified(self, digest: bytes) -> TokenizerFiles:
        """Return the complete files. Hashes them: 40 ms for 64 MiB.

        Raises:
            ValueError: they do not match the digest.
        """
        present = {file: bytes(data) for file, data in self._files.items()}
        files = TokenizerFiles(
            present.get(TOKENIZER_FILE_TOKENIZER, b""),
            present.get(TOKENIZER_FILE_CONFIG),
            present.get(TOKENIZER_FILE_CHAT_TEMPLATE),
        )
        if files.digest != digest:
            raise ValueError(
                f"received {self._received} bytes with digest {files.digest.hex()[:16]} instead of "
                f"{digest.hex()[:16]}"
            )
        return files
