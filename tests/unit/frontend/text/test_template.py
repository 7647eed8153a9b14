"""Chat templates do what Hugging Face templates expect, inside the sandbox."""

import datetime

import pytest

from baton.errors import BatonError, Reason
from services.frontend.pictures.data_url import PictureUrl
from services.frontend.text.chat_template import ChatMessage, ChatTemplate, TemplateOptions

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
HELLO = [ChatMessage("user", "<hi> & 'é'", "ann")]


def render(source: str | None) -> str:
    return ChatTemplate(source, TOKENS).render(HELLO)


def test_what_templates_use_is_there() -> None:
    assert render("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}") == (
        "<s><hi> & 'é'</s>"
    )
    assert render("{{ messages | tojson }}") == (
        '[{"role": "user", "content": "<hi> & \'é\'", "name": "ann"}]'
    )
    assert render("{% for m in messages %}\n  {% break %}\n{% endfor %}\nx") == "x"
    assert render("{% generation %}said{% endgeneration %}") == "said"
    assert render("{{ add_generation_prompt }}{{ tools }}") == "TrueNone"
    assert render("{{ strftime_now('%Y') }}") == str(datetime.datetime.now().year)


def test_developer_is_the_system() -> None:
    template = ChatTemplate("{{ messages[0].role }}")
    assert template.render([ChatMessage("developer", "x")]) == "system"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "no chat template"),
        ("{% if %}", "does not compile"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ nothing.at.all }}", "failed"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ''.__class__.__mro__ }}", "failed"),
        ("{{ messages.clear() }}", "failed"),
        ("{% for i in range(1000000) %}{% endfor %}", "failed"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_request(source: str | None, said: str) -> None:
    with pytest.raises(BatonError, match=said) as caught:
        render(source)
    assert (caught.value.reason, caught.value.field) == (Reason.TEMPLATE_FAILED, "messages")


def test_variables_of_a_model_are_the_requests_to_say() -> None:
    template = ChatTemplate(
        "{{ enable_thinking }} {{ documents }} {{ messages | length }} {{ bos_token }}", TOKENS
    )
    asked = {"enable_thinking": False, "documents": ["d"], "messages": [], "bos_token": "x"}
    assert template.render(HELLO, TemplateOptions(variables=asked)) == "False ['d'] 1 <s>"


SAYS_ALL = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"


@pytest.mark.parametrize(
    ("source", "final", "expected"),
    [
        (SAYS_ALL, "Once ", "<user>x</><assistant>Once "),
        # A template that takes away spaces at the end.
        (SAYS_ALL.replace("m.content", "m.content | trim"), "Once ", "<user>x</><assistant>Once"),
        # The last time that it stands there.
        (SAYS_ALL, "x", "<user>x</><assistant>x"),
    ],
)
def test_a_last_message_is_gone_on_with(source: str, final: str, expected: str) -> None:
    template = ChatTemplate(source + "{% if add_generation_prompt %}new{% endif %}")
    messages = [ChatMessage("user", "x"), ChatMessage("assistant", final)]
    options = TemplateOptions(continue_final_message=True)
    assert template.render(messages, options) == expected
    new = template.render(messages, TemplateOptions(add_generation_prompt=False))
    assert template.render(messages) == new + "new"


def test_a_last_message_that_the_template_changes_is_refused() -> None:
    template = ChatTemplate("{{ messages[-1].content | upper }}")
    with pytest.raises(BatonError, match="continue_final_message"):
        template.render([ChatMessage("user", "x")], TemplateOptions(continue_final_message=True))


ONLY_PARTS = (
    "{% for m in messages %}{{ m.role }}:"
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% elif part.type == 'image' %}<image>{% endif %}{% endfor %};{% endfor %}"
)
EITHER = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}({{ m.content }}){% else %}"
    "{% for part in m.content %}{{ part.text if part.type == 'text' else '<image>' }}"
    "{% endfor %}{% endif %};{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [(ONLY_PARTS, "system:be kind;user:a<image>b;"), (EITHER, "system:(be kind);user:a<image>b;")],
)
def test_text_is_a_list_of_parts_where_the_template_takes_nothing_else(
    source: str, expected: str
) -> None:
    picture = PictureUrl("data:image/png;base64,", "messages[1]")
    seen = ChatMessage("user", "ab", parts=["a", picture, "b"])
    assert ChatTemplate(source).render([ChatMessage("system", "be kind"), seen]) == expected
