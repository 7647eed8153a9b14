"""Files of a checkpoint that passes every check and computes nothing."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
CONFIG = {"architectures": ["LlamaForCausalLM"], "vocab_size": 512}


def safetensors(tensors: Mapping[str, bytes]) -> bytes:
    """Return a safetensors file of these tensors, each of bytes."""
    header, at = {}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(tensors.values())


def checkpoint_files(seed: int = 0, shard_bytes: int = 200_000) -> dict[str, bytes]:
    """Return the files of a checkpoint with two shards; other seeds have other weights."""
    made = random.Random(seed)
    weights = {
        shard: {f"layer.{number}": made.randbytes(shard_bytes)}
        for number, shard in enumerate(SHARDS)
    }
    names = {tensor: shard for shard, tensors in weights.items() for tensor in tensors}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b'{"version": "1.0"}',
        "LICENSE": b"Do as you please.\n",
        INDEX: json.dumps({"weight_map": names}).encode(),
        **{shard: safetensors(tensors) for shard, tensors in weights.items()},
    }


def write_files(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a directory, which is created; return it."""
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return directory


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory, by their paths."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }
