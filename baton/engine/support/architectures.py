"""The table of architectures: the kind of KV of each, and the engine that computes it.

Names are those of `architectures` in config.json. The vLLM engine's are from the registry of the
release in `environment.TESTED_VERSION` (vllm/model_executor/models/registry.py); defaults are those
of transformers' configuration classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

LATENT = "latent attention (MLA)"
STATE = "state-space or linear attention layers"
ENCODER_DECODER = "an encoder next to the decoder"
MULTIMODAL = "inputs besides text (images, audio or video)"
BLOCK_SPARSE = "block-sparse attention"
NO_TEXT = "no output of text (an encoder)"


class Windows(Enum):
    """Form in which config.json declares that layers attend only to a sliding window."""

    GIVEN = "given"
    """`sliding_window` is the width, unless it is null."""
    FLAGGED = "flagged"
    """The same, but only with `use_sliding_window`."""
    UPPER_LAYERS = "upper layers"
    """The same, but only in the layers from `max_window_layers` on."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture."""

    torch: str = ""
    """Family in the torch engine; empty: not supported there."""
    needs: str = ""
    """A required feature that neither engine has; empty: vLLM serves it."""
    windows: Windows = Windows.GIVEN
    default_window: int | None = None
    """Width if config.json has no `sliding_window` at all; None: no window."""
    full_every: int = 0
    """The last of so many layers attends to the whole context, unless config.json says which do; 0:
    all layers have the window."""


_FULL = Architecture()
_FLAGGED = Architecture(windows=Windows.FLAGGED)
_WINDOWED = Architecture(default_window=4096)

_ROWS: Mapping[str, Architecture] = {
    "LlamaForCausalLM": Architecture("llama"),
    "MistralForCausalLM": Architecture("llama", default_window=4096),
    "Qwen2ForCausalLM": Architecture("qwen2", windows=Windows.UPPER_LAYERS),
    "Qwen3ForCausalLM": Architecture("qwen3", windows=Windows.UPPER_LAYERS),
    "Phi3ForCausalLM": Architecture("phi3"),
    "Olmo2ForCausalLM": Architecture("olmo2"),
    "GraniteForCausalLM": Architecture("granite"),
    "Glm4ForCausalLM": Architecture("glm4"),
    "SmolLM3ForCausalLM": Architecture("smollm3", windows=Windows.FLAGGED),
    "Qwen2MoeForCausalLM": _FLAGGED,
    "Qwen3MoeForCausalLM": Architecture("qwen3_moe", windows=Windows.FLAGGED),
    "MixtralForCausalLM": Architecture("mixtral"),
    "OlmoeForCausalLM": Architecture("olmoe"),
    "GptOssForCausalLM": Architecture("gpt_oss", default_window=128, full_every=2),
    "GemmaForCausalLM": Architecture("gemma"),
    "Gemma2ForCausalLM": Architecture("gemma2", default_window=4096, full_every=2),
    "Gemma3ForCausalLM": Architecture("gemma3", default_window=4096, full_every=6),
    "Llama4ForCausalLM": _FULL,
    "Qwen3NextForCausalLM": _FULL,
    "Phi3SmallForCausalLM": Architecture(needs=BLOCK_SPARSE),
    "Idefics3ForConditionalGeneration": _FULL,
}

_FULL_ATTENTION = """
ApertusForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM BloomForCausalLM ChatGLMModel
CohereForCausalLM DbrxForCausalLM DeepseekForCausalLM Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM
ExaoneForCausalLM FalconForCausalLM GPT2LMHeadModel GPTJForCausalLM
Glm4MoeForCausalLM GraniteMoeForCausalLM
GraniteMoeSharedForCausalLM HyperCLOVAXForCausalLM InternLM2ForCausalLM InternLM3ForCausalLM
MiMoForCausalLM MiniCPMForCausalLM MiniMaxM2ForCausalLM NemotronForCausalLM
OPTForCausalLM OrionForCausalLM PhiMoEForCausalLM SolarForCausalLM
StableLmForCausalLM TeleChat2ForCausalLM TeleFLMForCausalLM
"""
"""One kind of KV, of the whole context, unless config.json sets `sliding_window`."""

_WINDOWS = """
AfmoeForCausalLM Cohere2ForCausalLM Cohere2MoeForCausalLM Exaone4ForCausalLM ExaoneMoeForCausalLM
Gemma3nForCausalLM Gemma4ForCausalLM GraniteMoeSWAForCausalLM
GraniteSWAForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM MinistralForCausalLM
Olmo3ForCausalLM Plamo3ForCausalLM Step3p5ForCausalLM
"""
"""Layers with a window, usually next to others."""

_NEEDS: Mapping[str, str] = {
    LATENT: """
AXK1ForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM
DeepseekV4ForCausalLM Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM HYV4ForCausalLM
LongcatFlashForCausalLM LongcatFlashNgramForCausalLM MistralLarge3ForCausalLM
PanguUltraMoEForCausalLM SarvamMLAForCausalLM
""",
    STATE: """
BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM
GraniteMoeHybridForCausalLM JambaForCausalLM KimiLinearForCausalLM Lfm2ForCausalLM
Lfm2MoeForCausalLM Mamba2ForCausalLM MambaForCausalLM NemotronHForCausalLM
NemotronHPuzzleForCausalLM OlmoHybridForCausalLM Qwen3_5ForCausalLM
Qwen3_5MoeForCausalLM RecurrentGemmaForCausalLM RwkvForCausalLM Zamba2ForCausalLM
""",
    ENCODER_DECODER: """
BartForConditionalGeneration MBartForConditionalGeneration MT5ForConditionalGeneration
MarianMTModel PegasusForConditionalGeneration T5ForConditionalGeneration
UMT5ForConditionalGeneration WhisperForConditionalGeneration
""",
    MULTIMODAL: """
Gemma3ForConditionalGeneration Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration
InternVLChatModel Llama4ForConditionalGeneration
LlavaForConditionalGeneration LlavaNextForConditionalGeneration Mistral3ForConditionalGeneration
MllamaForConditionalGeneration PaliGemmaForConditionalGeneration Phi3VForCausalLM
Phi4MMForCausalLM Qwen2AudioForConditionalGeneration Qwen2VLForConditionalGeneration
Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration
Qwen3VLMoeForConditionalGeneration
""",
}

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        **_ROWS,
        **dict.fromkeys(_FULL_ATTENTION.split(), _FULL),
        **dict.fromkeys(_WINDOWS.split(), _WINDOWED),
        **{
            name: Architecture(needs=needs)
            for needs, names in _NEEDS.items()
            for name in names.split()
        },
    }
)
"""Architectures by their name in config.json."""

TORCH_FAMILIES: Mapping[str, str] = MappingProxyType(
    {name: row.torch for name, row in ARCHITECTURES.items() if row.torch}
)
"""Families that the torch engine runs, by their name in config.json."""
