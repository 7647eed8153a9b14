"""The weights of a checkpoint, out of its safetensors files."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from baton.engine.config import CheckpointError, ModelConfig

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DIGEST_BYTES = 16
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map: weight [out, in], bias [out] or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer block. Norms are weights [size]; q_norm and k_norm only in Qwen3."""

    attention_norm: Tensor
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    mlp_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model, on one device in one dtype."""

    embedding: Tensor
    """[vocab, hidden]"""
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor
    """[vocab, hidden]; the embedding itself where the two are tied."""


def read_weights(
    directory: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> Weights:
    """Read a checkpoint's weights.

    On the CPU in the checkpoint's own dtype nothing is copied: processes that serve the same files
    share them in the page cache.

    Raises:
        CheckpointError: a file or a tensor is missing, damaged, or of no use to this engine.
    """
    with ExitStack() as stack:
        files = _open(directory, stack)
        reader = _Reader(directory, files, dtype, device)
        weights = _weights(reader, config)
        reader.check_all_used()
    return weights


def weights_digest(directory: Path, config: ModelConfig) -> bytes:
    """16 bytes that name the model: SHA-256 over its configuration and its files, in name order.

    Raises:
        CheckpointError: a file is missing.
    """
    digest = sha256(b"baton.weights.1\0" + msgspec.json.encode(config))
    for path in _paths(directory):
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    return digest.digest()[:DIGEST_BYTES]


def _paths(directory: Path) -> list[Path]:
    """The safetensors files, in name order."""
    index = directory / INDEX
    names = {SINGLE}
    if index.exists():
        try:
            names = set(msgspec.json.decode(index.read_bytes())["weight_map"].values())
        except (msgspec.DecodeError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{index} is damaged: it has no weight_map.") from error
    for name in sorted(names):
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{index} names {name!r}, which is not a file beside it.")
        if not (directory / name).is_file():
            reason = f"{INDEX} names it" if index.exists() else f"there is no {INDEX} either"
            raise CheckpointError(f"{directory / name} is missing ({reason}).")
    return [directory / name for name in sorted(names)]


def _open(directory: Path, stack: ExitStack) -> dict[str, Any]:
    """Open every file; answers which one holds a tensor, by the tensor's name."""
    holders: dict[str, Any] = {}
    for path in _paths(directory):
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}.") from error
        holders.update(dict.fromkeys(file.keys(), file))
    return holders


class _Reader:
    """Hands out tensors by name and keeps account of them."""

    def __init__(
        self,
        directory: Path,
        holders: Mapping[str, Any],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._directory = directory
        self._holders = holders
        self._dtype = dtype
        self._device = device
        self._unused = {name for name in holders if not name.endswith(".rotary_emb.inv_freq")}

    def __contains__(self, name: str) -> bool:
        return name in self._holders

    def tensor(self, name: str, *shape: int) -> Tensor:
        if name not in self._holders:
            raise CheckpointError(f"{self._directory} has no tensor {name}.")
        found: Tensor = self._holders[name].get_tensor(name)
        if found.shape != shape:
            raise CheckpointError(
                f"{self._directory} has {name} of shape {list(found.shape)}; "
                f"config.json says {list(shape)}."
            )
        self._unused.discard(name)
        return found.to(self._device, self._dtype)

    def optional(self, name: str, *shape: int) -> Tensor | None:
        return self.tensor(name, *shape) if name in self else None

    def linear(self, name: str, inputs: int, outputs: int) -> Linear:
        return Linear(
            self.tensor(f"{name}.weight", outputs, inputs), self.optional(f"{name}.bias", outputs)
        )

    def drop(self, name: str) -> None:
        """A tensor that may be there and is not needed."""
        self._unused.discard(name)

    def check_all_used(self) -> None:
        """A tensor that nobody asked for means a model that this engine would get wrong."""
        if self._unused:
            raise CheckpointError(
                f"{self._directory} has tensors that this engine does not know, "
                f"{min(self._unused)} among them."
            )


def _weights(reader: _Reader, config: ModelConfig) -> Weights:
    hidden = config.hidden_size
    embedding = reader.tensor("model.embed_tokens.weight", config.vocab_tokens, hidden)
    head = embedding
    tied = config.tied_embeddings
    if tied or (tied is None and "lm_head.weight" not in reader):
        reader.drop("lm_head.weight")
    else:
        head = reader.tensor("lm_head.weight", config.vocab_tokens, hidden)
    return Weights(
        embedding, tuple(_layers(reader, config)), reader.tensor("model.norm.weight", hidden), head
    )


def _layers(reader: _Reader, config: ModelConfig) -> Iterator[LayerWeights]:
    hidden, mlp, head = config.hidden_size, config.mlp_size, config.head_size
    queries, keys = config.heads * head, config.kv_heads * head
    for i in range(config.layers):
        at = f"model.layers.{i}"
        yield LayerWeights(
            attention_norm=reader.tensor(f"{at}.input_layernorm.weight", hidden),
            q=reader.linear(f"{at}.self_attn.q_proj", hidden, queries),
            k=reader.linear(f"{at}.self_attn.k_proj", hidden, keys),
            v=reader.linear(f"{at}.self_attn.v_proj", hidden, keys),
            o=reader.linear(f"{at}.self_attn.o_proj", queries, hidden),
            q_norm=reader.optional(f"{at}.self_attn.q_norm.weight", head),
            k_norm=reader.optional(f"{at}.self_attn.k_norm.weight", head),
            mlp_norm=reader.tensor(f"{at}.post_attention_layernorm.weight", hidden),
            gate=reader.linear(f"{at}.mlp.gate_proj", hidden, mlp),
            up=reader.linear(f"{at}.mlp.up_proj", hidden, mlp),
            down=reader.linear(f"{at}.mlp.down_proj", mlp, hidden),
        )
