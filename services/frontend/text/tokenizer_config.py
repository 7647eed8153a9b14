"""tokenizer_config.json: a checkpoint's special tokens by name, and its chat templates."""

from collections.abc import Mapping
from typing import Any

import msgspec

from baton.worker.wire.tokenizer_files import MORE_TEMPLATES, TOOL_TEMPLATE

ROLES_OF_TOKENS = (
    *("bos_token", "eos_token", "unk_token", "sep_token"),
    *("pad_token", "cls_token", "mask_token"),
)
"""The names that every Hugging Face tokenizer has. Templates of some models use others, which also
end in `_token`: `image_token`, `boi_token`."""
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_NAMED = ("extra_special_tokens", "model_specific_special_tokens")
"""Objects with further tokens by name."""


def read_config(data: bytes | None) -> dict[str, Any]:
    """Return the file's object; empty if there is no file.

    Raises:
        ValueError: it is not a JSON object.
    """
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"tokenizer_config.json is not a JSON object: {error}") from error


def special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of special tokens by their names in templates.

    A token is written as its text or as an object that contains it. Missing tokens have no name,
    except `bos_token` and `eos_token`, which are empty.
    """
    found: dict[str, Any] = {"bos_token": "", "eos_token": ""}
    named = {name: token for name, token in config.items() if name.endswith("_token")}
    for group in map(config.get, _NAMED):
        named |= group if isinstance(group, dict) else {}
    found |= {name: text for name, token in named.items() if (text := _text(token))}
    more: list[str] = []
    for name in _LISTS:
        if isinstance(listed := config.get(name), list):
            more += [text for token in listed if (text := _text(token))]
    if more:
        found["additional_special_tokens"] = more
    return found


def templates(data: bytes | None, config: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the sources of the chat template, and of the one for conversations with tools; None:
    there is none, or no separate one.

    Args:
        data: of chat_template.jinja, which takes precedence over the configuration.
        config: returned by `read_config`.
    """
    more = config.get(MORE_TEMPLATES)
    tools = more.get(TOOL_TEMPLATE) if isinstance(more, dict) else None
    if data is not None:
        return data.decode(), _source(tools)
    named = config.get("chat_template")
    if isinstance(named, list):  # several named templates
        named = {one.get("name"): one.get("template") for one in named if isinstance(one, dict)}
    if isinstance(named, dict):
        return _source(named.get("default")), _source(tools or named.get(TOOL_TEMPLATE))
    return _source(named), _source(tools)


def _source(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _text(token: Any) -> str:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""
