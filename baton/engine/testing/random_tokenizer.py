"""A small tokenizer with a chat template, trained on text that is generated on the spot."""

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
MIN_VOCAB = 256 + len(SPECIAL_TOKENS)

CHAT_TEMPLATE = """\
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if messages[0].role == 'system' -%}
{{- messages[0].content ~ '\\n\\n' -}}
{%- endif -%}
{{- 'You can call these functions:\\n<tools>' -}}
{%- for tool in tools -%}
{{- '\\n' ~ (tool | tojson) -}}
{%- endfor -%}
{{- '\\n</tools>\\nA call is <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call>' -}}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] -%}
{{- raise_exception('unknown role ' ~ message.role) -}}
{%- endif -%}
{%- if not (tools and loop.first and message.role == 'system') -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content -}}
{%- for call in message.tool_calls or [] -%}
{%- if message.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}
{{- '<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' -}}
{{- (call.function.arguments | tojson) ~ '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def tokenizer_config(context: int) -> dict[str, Any]:
    """Return the content of tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "additional_special_tokens": list(SPECIAL_TOKENS),
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def end_tokens(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the tokens that end an answer."""
    ids = tokenizer.get_vocab()
    return [ids[token] for token in (TURN_END, END_OF_TEXT)]


def make_tokenizer(vocab: int) -> Tokenizer:
    """Return a byte-level BPE of exactly `vocab` tokens, which reproduces every text unchanged.

    Raises:
        ValueError: `vocab` is below MIN_VOCAB.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_synthetic_text(4 * vocab), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(
            f"no tokenizer of {vocab} tokens comes out of the text that it learns from"
        )
    return tokenizer


def _synthetic_text(words: int) -> Iterator[str]:
    """Return sentences of invented words, a few of them frequent, as in a language."""
    # random is stable across releases; nothing here is secret.
    draw = random.Random(0)
    syllables = [c + v + end for c in "bdfgklmnprstvz" for v in "aeiou" for end in ("", "n", "r")]
    lexicon = [
        "".join(draw.choice(syllables) for _ in range(draw.randint(1, 4))) for _ in range(words)
    ]
    weights = list(accumulate(1 / (rank + 2) for rank in range(words)))
    for _ in range(words // 4):
        sentence = " ".join(draw.choices(lexicon, cum_weights=weights, k=draw.randint(4, 12)))
        yield f"{sentence.capitalize()}. "
