"""A tokenizer's files keep their identity on the way."""

from dataclasses import replace
from pathlib import Path

import pytest

from baton.internal.v1.worker_pb2 import GetTokenizerResponse
from baton.worker.wire.tokenizer_files import CHUNK_BYTES, TokenizerAssembly, TokenizerFiles

FILES = TokenizerFiles(b"t" * (2 * CHUNK_BYTES + 1), b"{}", b"")


def assembled(pieces: list[GetTokenizerResponse], size: int) -> TokenizerAssembly:
    assembly = TokenizerAssembly(size)
    for piece in pieces:
        assembly.add(piece)
    return assembly


def test_files_are_the_same_after_the_way() -> None:
    pieces = list(FILES.chunks())
    assert [len(piece.data) for piece in pieces] == [CHUNK_BYTES, CHUNK_BYTES, 1, 2, 0]
    assert assembled(pieces, FILES.size).verified(FILES.digest) == FILES


def test_every_byte_and_every_file_counts() -> None:
    others = [
        replace(FILES, chat_template=None),
        replace(FILES, config=b"{} "),
        replace(FILES, config=b"", chat_template=b"{}"),
        replace(FILES, tokenizer=FILES.tokenizer[:-1]),
    ]
    assert len({FILES.digest, *(other.digest for other in others)}) == 5


def test_what_did_not_come_whole_is_refused() -> None:
    pieces = list(FILES.chunks())
    for wrong in (pieces[:-1], pieces[1:], [pieces[0], *pieces], []):
        with pytest.raises(ValueError, match="received"):
            assembled(wrong, FILES.size + CHUNK_BYTES).verified(FILES.digest)


def test_no_more_is_taken_than_was_promised() -> None:
    with pytest.raises(ValueError, match="more than 2097152 bytes"):
        assembled(list(FILES.chunks()), 2 * CHUNK_BYTES)
    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        assembled([pieces for pieces in FILES.chunks() if len(pieces.data) > 2] * 33, 1 << 40)
    with pytest.raises(ValueError, match="unknown file 9"):
        assembled([GetTokenizerResponse(file=9, data=b"x")], 10)  # type: ignore[arg-type]


def test_only_the_tokenizers_files_are_read(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "chat_template.jinja", "model.safetensors", "secret"):
        (tmp_path / name).write_text(name)
    files = TokenizerFiles.read(tmp_path)
    assert files == TokenizerFiles(b"tokenizer.json", None, b"chat_template.jinja")
    with (tmp_path / "tokenizer.json").open("r+b") as sparse:
        sparse.truncate(65 * 1024 * 1024)
    with pytest.raises(ValueError, match="at most 67108864"):
        TokenizerFiles.read(tmp_path)
