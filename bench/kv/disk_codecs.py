"""What codecs make of KV: how much room is left, and how fast: `python -m bench.kv.disk_codecs`.

    python -m bench.kv.disk_codecs [--model DIR] [--tokens 3000] [--json FILE]

The KV is what the torch engine computes in bfloat16 for a prompt made of this project's own
documents: an object per block, and an object per 8 blocks. Beside it random bytes, and random
numbers of the same spread. `copy` is memcpy of the same pieces: the limit. `room` is the share of
granules of 16 KiB that is left, which is what an object takes on disk. One thread, best of three
rounds, GB/s of the objects' bytes. Rows in brackets show what was decided against; fp8 does not
give back what it was given, and its error is printed, as a share of the object's largest number.
"""

import argparse
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zstandard
from lz4 import block as lz4_block
from tokenizers import Tokenizer

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted
from baton.engine.factory import create_engine
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.harness import ROOT, cli
from bench.harness.table import Table
from services.kvstore.disk.codecs import LZ4, ZSTD, make_codec
from services.kvstore.disk.index import disk_size

JOINED = 8
FP8 = torch.float8_e4m3fn


@dataclass
class Row:
    """One codec on one kind of object."""

    objects: str
    codec: str
    ratio: float
    room: float
    encode_gb_per_s: float
    decode_gb_per_s: float
    worst_error: float
    """Of the largest number in the object; 0: exact."""


Encode = Callable[[memoryview], bytes]
Decode = Callable[[memoryview, memoryview], None]


def kv_of(engine: Engine, tokens: Sequence[int]) -> list[bytes]:
    """The KV of a prompt, block by block."""
    engine.add(
        SequenceRequest(1, b"root", tokens, SamplingParams(seed=1, max_tokens=2), prefill_only=True)
    )
    while engine.has_work():
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, 0)
    blocks = []
    for index in range(len(tokens) // engine.info.layout.block_tokens):
        block = bytearray(engine.info.block_bytes)
        engine.read_block(1, index, memoryview(block))
        blocks.append(bytes(block))
    return blocks


def split(data: bytes | memoryview) -> bytes:
    whole = np.frombuffer(data, np.uint8)
    return np.concatenate((whole[::2], whole[1::2])).tobytes()


def join(data: bytes, out: memoryview) -> None:
    whole = np.frombuffer(out, np.uint8)
    half = len(data) // 2
    whole[::2], whole[1::2] = (
        np.frombuffer(data[:half], np.uint8),
        np.frombuffer(data[half:], np.uint8),
    )


def to_fp8(data: memoryview) -> bytes:
    """One scale per object, then a byte per number."""
    values = torch.frombuffer(bytearray(data), dtype=torch.bfloat16).float()
    scale = values.abs().max().clamp(min=1e-30) / torch.finfo(FP8).max
    numbers: bytes = (values / scale).to(FP8).view(torch.uint8).numpy().tobytes()
    return struct.pack("<f", scale.item()) + numbers


def from_fp8(data: memoryview, out: memoryview) -> None:
    scale = float(np.frombuffer(data[:4], np.float32)[0])
    values = torch.frombuffer(bytearray(data[4:]), dtype=torch.uint8).view(FP8).float() * scale
    out[:] = values.to(torch.bfloat16).view(torch.uint8).numpy().tobytes()


def ways() -> dict[str, tuple[Encode, Decode]]:
    """Every codec by its name, the store's own first."""
    of: dict[str, tuple[Encode, Decode]] = {}
    for name in (ZSTD, LZ4):
        codec = make_codec(name)
        assert codec is not None
        of[name] = (codec.encode, codec.decode)

    def copy(data: memoryview, out: memoryview) -> None:
        out[:] = data

    def zstd(level: int, *, splits: bool) -> tuple[Encode, Decode]:
        packer = zstandard.ZstdCompressor(level=level)
        unpacker = zstandard.ZstdDecompressor()

        def decode(data: memoryview, out: memoryview) -> None:
            if splits:
                join(unpacker.decompress(data), out)
            else:
                out[:] = unpacker.decompress(data)

        return (lambda data: packer.compress(split(data) if splits else data)), decode

    def plain_lz4(data: memoryview, out: memoryview) -> None:
        out[:] = lz4_block.decompress(data)

    return {
        "copy": (bytes, copy),
        **of,
        "(zstd 3)": zstd(3, splits=False),
        "(zstd 1, split)": zstd(1, splits=True),
        "(lz4, not split)": (lz4_block.compress, plain_lz4),
        "(fp8)": (to_fp8, from_fp8),
    }


def compare(
    objects: str, name: str, way: tuple[Encode, Decode], pieces: list[bytes], rounds: int
) -> Row:
    encode, decode = way
    total = sum(map(len, pieces))
    outs = [memoryview(bytearray(len(piece))) for piece in pieces]
    best = [float("inf")] * 2
    codes: list[bytes] = []
    for _ in range(rounds):
        began = time.perf_counter()
        codes = [encode(memoryview(piece)) for piece in pieces]
        between = time.perf_counter()
        for code, out in zip(codes, outs, strict=True):
            decode(memoryview(code), out)
        best = [min(best[0], between - began), min(best[1], time.perf_counter() - between)]
    worst = max(map(error, pieces, outs)) if name == "(fp8)" else 0.0
    if name != "(fp8)":
        assert all(piece == out for piece, out in zip(pieces, outs, strict=True)), name
    kept = [min(disk_size(len(c)), disk_size(len(p))) for c, p in zip(codes, pieces, strict=True)]
    return Row(
        objects,
        name,
        total / sum(map(len, codes)),
        sum(kept) / sum(disk_size(len(piece)) for piece in pieces),
        total / best[0] / 1e9,
        total / best[1] / 1e9,
        worst,
    )


def error(piece: bytes, out: memoryview) -> float:
    before, after = (
        torch.frombuffer(bytearray(each), dtype=torch.bfloat16).float() for each in (piece, out)
    )
    return float((before - after).abs().max() / before.abs().max())


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    text = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("**/*.md")))
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    tokens = tokenizer.encode(text).ids[: options.tokens]
    engine = create_engine(
        EngineSettings(model=options.model, dtype="bfloat16", threads=1, kv_bytes=1 << 30)
    )
    blocks = kv_of(engine, tokens)
    engine.close_engine()
    draw = np.random.default_rng(1)
    size = len(blocks[0])
    values = torch.frombuffer(bytearray(b"".join(blocks)), dtype=torch.bfloat16).float()
    normal = torch.from_numpy(draw.standard_normal((64, size // 2), np.float32)) * values.std()
    kinds = {
        f"KV, {size // 1024} KiB": blocks,
        f"KV, {JOINED * size // 1024} KiB": [
            b"".join(blocks[at : at + JOINED]) for at in range(0, len(blocks) - JOINED, JOINED)
        ],
        f"random numbers, {size // 1024} KiB": [
            row.to(torch.bfloat16).view(torch.uint8).numpy().tobytes() for row in normal
        ],
        f"random bytes, {size // 1024} KiB": [draw.bytes(size) for _ in range(64)],
    }
    table = Table(
        ("objects", "<22"),
        ("codec", "<16"),
        ("ratio", "6.2f"),
        ("room", "6.2f"),
        ("encode GB/s", "6.2f"),
        ("decode GB/s", "6.2f"),
        ("worst error", "6.3f"),
    )
    rows = []
    for kind, pieces in kinds.items():
        for name, way in ways().items():
            if name != "(fp8)" or not kind.startswith("random bytes"):
                row = asdict(compare(kind, name, way, pieces, options.rounds))
                table.row(*row.values())
                rows.append(row)
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "baton-tiny")
    parser.add_argument("--tokens", type=int, default=3000)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=3)
