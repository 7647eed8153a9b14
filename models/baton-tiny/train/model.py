"""A Llama in plain torch, in the arithmetic and under the tensor names of Hugging Face's."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model. The defaults make 5.0 M parameters, 10 MB in bf16."""

    vocab: int = 4096
    hidden: int = 256
    mlp: int = 768
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    context: int = 4096
    # Slow rotation: what is far away still looks like itself.
    rope_theta: float = 100_000.0
    norm_epsilon: float = 1e-5


class RmsNorm(nn.Module):
    """arXiv:1910.07467."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self._epsilon)


class Attention(nn.Module):
    """Grouped queries, causal, rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._shape = shape
        queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(shape.hidden, queries, bias=False)
        self.k_proj = nn.Linear(shape.hidden, keys, bias=False)
        self.v_proj = nn.Linear(shape.hidden, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, tokens, _ = x.shape
        size = self._shape.head_size
        q = self.q_proj(x).view(rows, tokens, -1, size).transpose(1, 2)
        k = self.k_proj(x).view(rows, tokens, -1, size).transpose(1, 2)
        v = self.v_proj(x).view(rows, tokens, -1, size).transpose(1, 2)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        repeat = self._shape.heads // self._shape.kv_heads
        # Repeated by hand: the CPU's flash kernel takes no groups.
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, tokens, -1))
        return out


class Mlp(nn.Module):
    """SwiGLU, arXiv:2002.05202."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """Attention, then the feed-forward part, each on a normed copy of the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden, shape.norm_epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.norm_epsilon)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(nn.Module):
    """The model, embeddings tied to the output layer."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.hidden, shape.norm_epsilon)
        frequencies = shape.rope_theta ** (
            -torch.arange(0, shape.head_size, 2, dtype=torch.float32) / shape.head_size
        )
        self.register_buffer("frequencies", frequencies, persistent=False)
        self._initialize(seed)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Normed hidden states [rows, tokens, hidden] of ids and positions [rows, tokens]."""
        assert isinstance(self.frequencies, Tensor)
        angles = positions[:, None, :, None].float() * self.frequencies
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed_tokens(ids)
        if torch.is_autocast_enabled(x.device.type):
            kind = torch.get_autocast_dtype(x.device.type)
            x, cos, sin = x.to(kind), cos.to(kind), sin.to(kind)
        for block in self.layers:
            x = block(x, cos, sin)
        out: Tensor = self.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., vocab] of hidden states [..., hidden]."""
        return functional.linear(hidden, self.embed_tokens.weight)

    def _initialize(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                continue
            last = name.endswith(("o_proj.weight", "down_proj.weight"))
            scale = 0.5 / parameter.shape[1] ** 0.5 * (0.3 if last else 1.0)
            with torch.no_grad():
                parameter.normal_(0.0, scale, generator=generator)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin
