"""What a checkpoint's tokenizer_config.json says reaches its chat templates."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors

from baton.worker.wire.tokenizer_files import TokenizerFiles
from services.frontend.text.chat_template import ChatMessage, ChatTemplate, TemplateOptions
from services.frontend.text.tokenizer import Tokenizer
from services.frontend.text.tokenizer_config import special_tokens, templates
from tests.unit.frontend.conftest import byte_level

HELLO = [ChatMessage("user", "hi")]
WITH_TOOLS = TemplateOptions(tools=[{"type": "function", "function": {"name": "f"}}])
TOOL_USE = "T{{ tools | length }}"


def added(text: str) -> dict[str, Any]:
    return {"__type": "AddedToken", "content": text, "special": True, "lstrip": False}


@pytest.mark.parametrize("shape", [str, added])
def test_templates_know_all_special_tokens(shape: Any) -> None:
    names = ("bos", "eos", "unk", "sep", "pad", "cls", "mask", "image", "boi")
    config = {f"{name}_token": shape(f"<{name}>") for name in names}
    more = {"additional_special_tokens": [shape("<a>"), shape("<b>")], "add_bos_token": True}
    found = special_tokens({**config, **more, "extra_special_tokens": {"audio": shape("<audio>")}})
    source = "".join(f"{{{{ {name}_token }}}}" for name in names)
    source += "{{ additional_special_tokens | join }}{{ audio }}{{ add_bos_token is defined }}"
    text = ChatTemplate(source, found).render(HELLO)
    assert text == "".join(f"<{name}>" for name in names) + "<a><b><audio>False"


def test_a_token_that_is_not_named_is_nothing() -> None:
    source = "[{{ bos_token }}{{ pad_token }}]{{ unk_token is defined }}"
    for config in ({}, {"unk_token": None, "pad_token": 5}, {"unk_token": {"lstrip": True}}):
        assert ChatTemplate(source, special_tokens(config)).render(HELLO) == "[]False"
    listed = special_tokens({"extra_special_tokens": ["<a>", added("<b>"), None]})
    assert listed["additional_special_tokens"] == ["<a>", "<b>"]


def test_a_special_token_that_a_template_writes_is_one() -> None:
    template = ChatTemplate("{{ unk_token }}{{ messages[0].content }}", {"unk_token": "<eos>"})
    tokenizer = Tokenizer(byte_level(), template)
    ids = tokenizer.encode_chat([ChatMessage("user", "<eos>")])
    assert [at for at, token in enumerate(ids) if token == tokenizer.tags["<eos>"]] == [0]


def test_a_conversation_begins_with_one_token_that_begins_texts() -> None:
    made = byte_level()
    end = made.token_to_id("<eos>")
    made.post_processor = processors.TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", end)]
    )
    source = "{{ bos_token }}{{ messages[0].content }}"
    tokenizer = Tokenizer(made, ChatTemplate(source, special_tokens({"bos_token": "<eos>"})))
    assert tokenizer.encode_chat(HELLO).count(end) == 1
    assert tokenizer.encode("hi").count(end) == 1


NAMED = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": TOOL_USE}]


@pytest.mark.parametrize(
    ("file", "config", "plain", "tools"),
    [
        (None, {"chat_template": "D{{ tools }}"}, "DNone", "D[{"),
        (None, {"chat_template": NAMED}, "D", "T1"),
        (None, {"chat_template": [*NAMED, {"name": "rag", "template": "R"}, "x"]}, "D", "T1"),
        (None, {"chat_template": {"default": "D", "tool_use": TOOL_USE}}, "D", "T1"),
        (None, {"chat_template": NAMED[:1]}, "D", "D"),
        # A file stands in the place of what the configuration has.
        (b"F", {"chat_template": NAMED}, "F", "F"),
        (b"F", {"additional_chat_templates": {"tool_use": TOOL_USE}}, "F", "T1"),
    ],
)
def test_the_template_for_tools_is_used_with_tools_alone(
    file: bytes | None, config: dict[str, Any], plain: str, tools: str
) -> None:
    source, tool_source = templates(file, config)
    template = ChatTemplate(source, {}, tool_source)
    assert template.render(HELLO) == plain
    assert template.render(HELLO, WITH_TOOLS).startswith(tools)
    assert template.writes_tools == (tools != "D" and tools != "F")


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        ("{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("{% if custom is defined %}{% set tools = custom %}{% endif %}{{ tools }}", True),
        ("{% for tool in tools or [] %}{{ tool }}{% endfor %}", True),
        ("{{ messages[0].content }} tools", False),
        ("{% set tools = [] %}", False),
        ("{% for m in messages %}{{ m.tool_calls }}{% endfor %}", False),
    ],
)
def test_a_template_that_never_looks_at_tools_is_known(source: str, writes: bool) -> None:
    assert ChatTemplate(source).writes_tools is writes


def test_templates_of_a_folder_come_with_the_files(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(byte_level().to_str())
    (tmp_path / "chat_template.jinja").write_text("F")
    plain = TokenizerFiles.read(tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(TOOL_USE)
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("R")
    for config in (None, {"pad_token": "<eos>"}):
        if config is not None:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        files = TokenizerFiles.read(tmp_path)
        assert files.digest != plain.digest
        template = Tokenizer.load(files).template
        assert (template.render(HELLO), template.render(HELLO, WITH_TOOLS)) == ("F", "T1")
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ValueError, match="not a JSON object"):
        TokenizerFiles.read(tmp_path)
