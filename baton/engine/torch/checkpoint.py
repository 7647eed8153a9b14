"""The weights of a checkpoint, read from its safetensors files."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from baton.engine.checkpoint.files import files_digest, weight_files
from baton.engine.checkpoint.model_config import ModelConfig, digest_input
from baton.engine.checkpoint.model_options import GATED, Activation, ExpertOptions
from baton.engine.support.documents import CheckpointError
from baton.engine.torch.linear import Linear, MakeLinear, ScaledHead, make_linear
from baton.engine.torch.lora.linear import AdaptedMaps
from baton.engine.torch.lora.matrices import MapPart
from baton.engine.torch.mlp import ExpertsMlp, GatedMlp, Mlp
from baton.engine.torch.rotary_order import head_order, reordered


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer block. Norms are weights [size]; None: the model has no such norm."""

    attention_norm: Tensor | None
    qkv: Linear
    """Queries, keys and values, concatenated."""
    o: Linear
    q_norm: Tensor | None
    """[head_size], or [heads · head_size] with `ModelOptions.wide_head_norms`."""
    k_norm: Tensor | None
    sinks: Tensor | None
    """[heads], as of `ScoreOptions`."""
    attention_out_norm: Tensor | None
    mlp_norm: Tensor | None
    mlp: Mlp
    mlp_out_norm: Tensor | None


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model, on one device in one dtype."""

    embedding: Tensor
    """[vocab, hidden]"""
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear
    """hidden → vocab; its weight is the embedding if the two are tied."""
    maps: AdaptedMaps | None = None
    """The maps that adapters are added to; None: there are no adapters."""


def read_weights(
    directory: Path,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    linear: MakeLinear = make_linear,
    maps: AdaptedMaps | None = None,
) -> Weights:
    """Read a checkpoint's weights.

    Maps that read the same input are joined, so that one product computes them; `linear` creates
    each from its weight and bias, and `maps` wraps those of layers, except of experts.

    Raises:
        CheckpointError: a file or a tensor is missing, damaged, or not supported by this engine.
    """
    with ExitStack() as stack:
        files = _open(directory, stack)
        offset = config.options.norm_offset
        reader = _Reader(directory, files, dtype, device, linear, offset, maps)
        weights = _weights(reader, config)
        reader.check_all_used()
    return weights


def weights_digest(directory: Path, config: ModelConfig) -> bytes:
    """Return 16 bytes that name the model: SHA-256 over its configuration and files, in name order.

    Raises:
        CheckpointError: a file is missing.
    """
    begin = b"baton.weights.1\0" + digest_input(config)
    return files_digest(begin, weight_files(directory))


def _open(directory: Path, stack: ExitStack) -> dict[str, Any]:
    """Open every file; return the file of each tensor, by the tensor's name."""
    holders: dict[str, Any] = {}
    for path in weight_files(directory):
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}.") from error
        holders.update(dict.fromkeys(file.keys(), file))
    return holders


class _Reader:
    """Reads tensors by name and records which were read."""

    def __init__(
        self,
        directory: Path,
        holders: Mapping[str, Any],
        dtype: torch.dtype,
        device: torch.device,
        linear: MakeLinear,
        norm_offset: float,
        maps: AdaptedMaps | None,
    ) -> None:
        self._norm_offset = norm_offset
        self.maps = maps
        self._directory = directory
        self.make_linear = linear
        self._holders = holders
        self._dtype = dtype
        self._device = device
        self._unused = {name for name in holders if not name.endswith(".rotary_emb.inv_freq")}

    def __contains__(self, name: str) -> bool:
        return name in self._holders

    def tensor(self, name: str, *shape: int, offset: float = 0.0) -> Tensor:
        if name not in self._holders:
            raise CheckpointError(f"{self._directory} has no tensor {name}.")
        found: Tensor = self._holders[name].get_tensor(name)
        if found.shape != shape:
            raise CheckpointError(
                f"{self._directory} has {name} of shape {list(found.shape)}; "
                f"config.json says {list(shape)}."
            )
        self._unused.discard(name)
        if offset:
            found = found.to(torch.promote_types(found.dtype, torch.float32)) + offset
        return found.to(self._device, self._dtype)

    def optional(self, name: str, *shape: int) -> Tensor | None:
        return self.tensor(name, *shape) if name in self else None

    def norm(self, name: str, size: int) -> Tensor | None:
        """Return the weight of a norm; an empty name ends in a dot: the model has no such norm."""
        if name.endswith("."):
            return None
        return self.tensor(f"{name}.weight", size, offset=self._norm_offset)

    def linear(self, inputs: int, outputs: Mapping[str, int]) -> Linear:
        """Return the maps of these names, each with its number of outputs, concatenated."""
        return self.make_linear(*self.joined(inputs, outputs))

    def adapted(
        self,
        weight: Tensor,
        bias: Tensor | None,
        outputs: Mapping[str, int],
        places: Tensor | None = None,
    ) -> Linear:
        """Return a map of joined weights to which adapters are added.

        Args:
            weight: [outputs, inputs]
            bias: [outputs], or None.
            outputs: number of outputs by the maps' names, in order.
            places: where outputs come from; None: they are in the checkpoint's order.
        """
        base = self.make_linear(weight, bias)
        if self.maps is None:
            return base
        parts, first = [], 0
        for name, size in outputs.items():
            order = None if places is None else places[first : first + size] - first
            parts.append(MapPart(name, first, size, order))
            first += size
        return self.maps.wrap(base, weight.shape[1], parts)

    def joined(self, inputs: int, outputs: Mapping[str, int]) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias of the maps of these names, each with its number of outputs."""
        weights = [self.tensor(f"{name}.weight", size, inputs) for name, size in outputs.items()]
        biases = [self.optional(f"{name}.bias", size) for name, size in outputs.items()]
        found = [bias for bias in biases if bias is not None]
        if len(found) not in (0, len(biases)):
            raise CheckpointError(
                f"{self._directory} has a bias for some of {', '.join(outputs)} and not for others."
            )
        return _joined(weights), _joined(found) if found else None

    def drop(self, name: str) -> None:
        """Ignore a tensor that may exist and is not needed."""
        self._unused.discard(name)

    def check_all_used(self) -> None:
        """Check that every tensor was read: an unread one indicates an unknown kind of model."""
        if self._unused:
            raise CheckpointError(
                f"{self._directory} has tensors that this engine does not support, "
                f"{min(self._unused)} among them."
            )


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _weights(reader: _Reader, config: ModelConfig) -> Weights:
    hidden = config.hidden_size
    embedding = reader.tensor("model.embed_tokens.weight", config.vocab_tokens, hidden)
    head = embedding
    tied = config.tied_embeddings
    if tied or (tied is None and "lm_head.weight" not in reader):
        reader.drop("lm_head.weight")
    else:
        head = reader.tensor("lm_head.weight", config.vocab_tokens, hidden)
    output = reader.make_linear(head, None)
    divisor, softcap = config.options.logits_divisor, config.options.logits_softcap
    if divisor != 1.0 or softcap:
        output = ScaledHead(output, divisor, softcap)
    return Weights(
        embedding,
        tuple(_layers(reader, config)),
        reader.tensor("model.norm.weight", hidden, offset=config.options.norm_offset),
        output,
        reader.maps,
    )


def _layers(reader: _Reader, config: ModelConfig) -> Iterator[LayerWeights]:
    hidden, head = config.hidden_size, config.head_size
    norms = config.options.norms
    order = head_order(config)
    for i in range(config.layers):
        at = f"model.layers.{i}"
        heads = f"{at}.self_attn"
        widths = (config.heads, config.kv_heads) if config.options.wide_head_norms else (1, 1)
        q_norm, k_norm = (
            reader.norm(f"{heads}.{name}_norm", width * head)
            if f"{heads}.{name}_norm.weight" in reader
            else None
            for name, width in zip("qk", widths, strict=True)
        )
        yield LayerWeights(
            attention_norm=reader.norm(f"{at}.{norms.before_attention}", hidden),
            qkv=_qkv(reader, config, heads, order),
            o=_adapted(reader, config.heads * head, {f"{heads}.o_proj": hidden}),
            q_norm=None if q_norm is None else reordered(q_norm, order),
            k_norm=None if k_norm is None else reordered(k_norm, order),
            sinks=reader.optional(f"{heads}.sinks", config.heads),
            attention_out_norm=reader.norm(f"{at}.{norms.after_attention}", hidden),
            mlp_norm=reader.norm(f"{at}.{norms.before_mlp}", hidden),
            mlp=_mlp(reader, config, i),
            mlp_out_norm=reader.norm(f"{at}.{norms.after_mlp}", hidden),
        )


def _qkv(reader: _Reader, config: ModelConfig, heads: str, order: Tensor | None) -> Linear:
    """Return a layer's projections, with queries and keys in the order of `head_order`."""
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    joined = f"{heads}.qkv_proj"
    names = {f"{heads}.q_proj": queries, f"{heads}.k_proj": keys, f"{heads}.v_proj": keys}
    if f"{joined}.weight" in reader:
        names = {joined: queries + 2 * keys}
    weight, bias = reader.joined(config.hidden_size, names)
    places = None
    if order is not None:
        places = torch.arange(queries + 2 * keys)
        for part in (weight, bias, places):
            if part is not None:
                part[: queries + keys] = reordered(part[: queries + keys], order)
    return reader.adapted(weight, bias, names, places)


def _adapted(reader: _Reader, inputs: int, outputs: Mapping[str, int]) -> Linear:
    return reader.adapted(*reader.joined(inputs, outputs), outputs)


def _mlp(reader: _Reader, config: ModelConfig, layer: int) -> Mlp:
    options = config.options
    hidden, experts = config.hidden_size, options.experts
    at = f"model.layers.{layer}"
    if experts is None or layer in experts.dense_layers:
        make = partial(_adapted, reader)
        return _gated(make, reader, f"{at}.mlp", GATED, hidden, config.mlp_size, options.activation)
    block = f"{at}.{experts.names.block}"
    router = reader.linear(hidden, {f"{block}.{experts.names.router}": experts.count})
    if f"{block}.experts.gate_up_proj" in reader:
        found = tuple(_stacked(reader, f"{block}.experts", hidden, experts, options.activation))
    else:
        names, size = experts.names.maps, experts.size
        found = tuple(
            _gated(
                reader.linear,
                reader,
                f"{block}.experts.{i}",
                names,
                hidden,
                size,
                options.activation,
            )
            for i in range(experts.count)
        )
    return ExpertsMlp(router, found, experts.per_token, experts.normalized)


def _gated(
    make: Callable[[int, Mapping[str, int]], Linear],
    reader: _Reader,
    at: str,
    names: tuple[str, str, str],
    hidden: int,
    size: int,
    activation: Activation,
) -> GatedMlp:
    gate, up, down = (f"{at}.{name}" for name in names)
    joined = f"{at}.gate_up_proj"
    outputs = {joined: 2 * size} if f"{joined}.weight" in reader else {gate: size, up: size}
    return GatedMlp(make(hidden, outputs), make(size, {down: hidden}), activation)


def _stacked(
    reader: _Reader, at: str, hidden: int, experts: ExpertOptions, activation: Activation
) -> Iterator[GatedMlp]:
    """Yield the experts of one tensor each of weights and biases, whose gates are every other."""
    count, size = experts.count, experts.size
    gate_up = reader.tensor(f"{at}.gate_up_proj", count, hidden, 2 * size)
    gate_up_bias = reader.tensor(f"{at}.gate_up_proj_bias", count, 2 * size)
    down = reader.tensor(f"{at}.down_proj", count, size, hidden)
    down_bias = reader.tensor(f"{at}.down_proj_bias", count, hidden)
    for i in range(count):
        weight = torch.cat((gate_up[i, :, 0::2], gate_up[i, :, 1::2]), dim=1)
        bias = torch.cat((gate_up_bias[i, 0::2], gate_up_bias[i, 1::2]))
        yield GatedMlp(
            reader.make_linear(weight.T.contiguous(), bias),
            reader.make_linear(down[i].T.contiguous(), down_bias[i].clone()),
            activation,
        )
