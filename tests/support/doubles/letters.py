"""The model of scripted workers: its tokens are bytes, its outputs the alphabet."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYOUT = b"L" * 16
MODEL = "org/letters"
CONTEXT = 100_000
TEMPLATE = (
    "{% for m in messages %}{% if m.content == 'refuse me' %}{{ raise_exception('no') }}{% endif %}"
    "{% if m.tool_calls and m.tool_calls | length > 1 %}"
    "{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}"
    "{{ m.role }}:{{ m.content }}\n{% endfor %}assistant:"
)


def write_model(directory: Path, template: str = TEMPLATE) -> Path:
    """Write a tokenizer whose tokens are single bytes and an end of sequence."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    directory.mkdir(parents=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return directory


EOS = 256
"""The end-of-sequence token."""
_LETTERS = {chr(b): i for i, b in enumerate(sorted(map(ord, pre_tokenizers.ByteLevel.alphabet())))}


def letter_id(letter: str) -> int:
    """Return the token of a letter."""
    return _LETTERS[letter]


def said(choice: int, count: int) -> str:
    """Return the text of a scripted worker's first `count` tokens of a choice."""
    return "".join(chr(97 + (choice * 5 + at) % 26) for at in range(count))
