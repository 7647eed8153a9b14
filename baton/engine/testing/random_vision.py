"""A tiny random checkpoint of a model that takes pictures, and random pictures."""

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

from baton.engine.testing.random_tokenizer import make_tokenizer, tokenizer_config

CONTEXT = 1024
PICTURE_TOKENS = 16
"""Embeddings of a picture; three more tokens stand around them."""
_TEXT_TOKENS = 512
_VOCAB = 544
_SIZE = 112
_SPECIAL = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' -}}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}{{- part.text -}}
{%- elif part.type == 'image' -%}{{- '<image>' -}}
{%- endif -%}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def write_vision_checkpoint(path: Path, seed: int = 0, *, split: bool = False) -> Path:
    """Write an Idefics3 of four layers and three for pictures in float32; takes a second.

    Args:
        path: the directory.
        seed: other seeds yield other weights.
        split: a picture has the more tokens, the larger it is.

    Returns:
        The path.
    """
    # They take seconds to import.
    import torch
    import transformers
    from tokenizers import AddedToken

    tokenizer = make_tokenizer(_TEXT_TOKENS)
    tokenizer.add_special_tokens([AddedToken(each, special=True) for each in _SPECIAL])
    ids = tokenizer.get_vocab()
    config = transformers.Idefics3Config(
        text_config={
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": _VOCAB,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": CONTEXT,
            "initializer_range": 0.15,
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": 0,
            "tie_word_embeddings": False,
        },
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": _SIZE,
            "patch_size": 14,
        },
        image_token_id=ids["<image>"],
        scale_factor=2,
        tie_word_embeddings=False,
        pad_token_id=0,
        architectures=["Idefics3ForConditionalGeneration"],
    )
    torch.manual_seed(seed)
    make_model: Any = transformers.Idefics3ForConditionalGeneration
    model = make_model(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # As initialized, outputs would not tell one picture from another.
            if ("vision" in name and parameter.ndim > 1) or "connector" in name:
                parameter.normal_(0, 0.3)
    model.save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    named = tokenizer_config(CONTEXT)
    named["additional_special_tokens"] += _SPECIAL
    _write(
        path / "tokenizer_config.json",
        {**named, "processor_class": "Idefics3Processor", "chat_template": _TEMPLATE},
    )
    _write(
        path / "preprocessor_config.json",
        {
            "image_processor_type": "Idefics3ImageProcessor",
            "processor_class": "Idefics3Processor",
            "do_convert_rgb": True,
            "do_image_splitting": split,
            "do_normalize": True,
            "do_pad": True,
            "do_rescale": True,
            "do_resize": True,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
            "max_image_size": {"longest_edge": _SIZE},
            "resample": 1,
            "rescale_factor": 1 / 255,
            "size": {"longest_edge": 4 * _SIZE if split else _SIZE},
        },
    )
    _write(
        path / "processor_config.json",
        {"processor_class": "Idefics3Processor", "image_seq_len": PICTURE_TOKENS},
    )
    return path


def random_png(seed: int, width: int = 60, height: int = 40) -> bytes:
    """Return a picture of random stripes: other seeds yield other ones of the same size."""
    draw = random.Random(seed)  # nothing here is secret
    row = b"".join(draw.randbytes(3) * 5 for _ in range(width // 5 + 1))[: 3 * width]
    rows = b"".join(b"\0" + (row if at // 10 % 2 else row[::-1]) for at in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document))
