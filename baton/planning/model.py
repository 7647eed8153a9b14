"""What a checkpoint has to say about memory and arithmetic."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import msgspec

from baton.engine.checkpoint.files import tensor_shapes, weight_files
from baton.engine.checkpoint.integrity import check_contents, check_directory
from baton.engine.support.check import check_architecture
from baton.engine.support.documents import CONFIG, CheckpointError, read_document

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U8": 8,
    "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "U64": 64, "U32": 32, "U16": 16,
}  # fmt: skip
_FLOATS = ("F64", "F32", "F16", "BF16")
_EXPERTS = ".experts."


class _Text(msgspec.Struct):
    """The fields of config.json that are used; of a multimodal model, those of its text_config."""

    num_hidden_layers: int = 0
    num_attention_heads: int = 0
    hidden_size: int = 0
    vocab_size: int = 0
    max_position_embeddings: int = 0
    intermediate_size: int = 0
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    num_experts: int | None = None
    num_local_experts: int | None = None
    num_experts_per_tok: int | None = None


class _Document(_Text):
    text_config: _Text | None = None


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's memory and arithmetic."""

    weight_bytes: int
    """On the GPU, in the element type of `element_bytes`; quantized tensors as they are."""
    expert_bytes: int
    """Of them, those of experts."""
    parameters: int
    expert_parameters: int
    experts: int
    """Per layer; 0: there are none."""
    experts_per_token: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden_size: int
    mlp_size: int
    vocab_tokens: int
    context_tokens: int
    element_bytes: int
    """Of an activation and of a value of KV."""

    @property
    def kv_token_bytes(self) -> int:
        """Bytes of one token's keys and values, of all layers and heads."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.element_bytes

    @property
    def active_parameters(self) -> float:
        """Parameters that one token is multiplied with."""
        return self.parameters - self.expert_parameters * (1 - self.expert_share(1))

    def read_bytes(self, tokens: int) -> float:
        """Return the bytes of weights that a step with this many tokens reads."""
        return self.weight_bytes - self.expert_bytes * (1 - self.expert_share(tokens))

    def expert_share(self, tokens: int) -> float:
        """Return the expected share of experts that tokens use, each any of them equally likely."""
        if not self.experts:
            return 1.0
        return 1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens


def read_model(directory: Path, dtype: str = "bfloat16") -> ModelSize:
    """Read the sizes of a checkpoint, without reading its tensors.

    Args:
        directory: of the checkpoint.
        dtype: in which the engine computes: one of `DTYPE_BYTES`.

    Raises:
        CheckpointError: it is incomplete or damaged, or Baton cannot serve it with vLLM.
    """
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a directory.")
    check_directory(directory)
    path = directory / CONFIG
    document = read_document(path, _Document)
    text = document.text_config or document
    check_architecture(directory, "vllm", 0)
    check_contents(directory, True, "off")
    element = DTYPE_BYTES[dtype]
    totals = {"": [0, 0], _EXPERTS: [0, 0]}
    for name, tensor in tensor_shapes(weight_files(directory)).items():
        count = prod(tensor.shape)
        total = totals[_EXPERTS if _EXPERTS in name else ""]
        total[0] += count
        # Floats are converted when they are loaded; what is quantized stays.
        total[1] += count * element if tensor.dtype in _FLOATS else count * _BITS[tensor.dtype] // 8
    heads = text.num_attention_heads
    if min(heads, text.num_hidden_layers, text.hidden_size, text.max_position_embeddings) < 1:
        raise CheckpointError(
            f"{path} does not say how many layers, heads and positions the model has: no plan can "
            "be made."
        )
    return ModelSize(
        weight_bytes=totals[""][1] + totals[_EXPERTS][1],
        expert_bytes=totals[_EXPERTS][1],
        parameters=totals[""][0] + totals[_EXPERTS][0],
        expert_parameters=totals[_EXPERTS][0],
        experts=(text.num_experts or text.num_local_experts or 0) if totals[_EXPERTS][0] else 0,
        experts_per_token=text.num_experts_per_tok or 0,
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=text.num_key_value_heads or heads,
        head_size=text.head_dim or text.hidden_size // heads,
        hidden_size=text.hidden_size,
        mlp_size=text.intermediate_size,
        vocab_tokens=text.vocab_size,
        context_tokens=text.max_position_embeddings,
        element_bytes=element,
    )
