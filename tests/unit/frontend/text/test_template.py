"""Chat templates do what Hugging Face templates expect, inside the sandbox."""

import datetime

import pytest

from baton.errors import BatonError, Reason
from services.frontend.text.chat_template import ChatTemplate, Message

HELLO = [Message("user", "<hi> & 'é'", "ann")]


def render(source: str | None) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(HELLO)


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
    template = ChatTemplate("{{ messages[0].role }}", "", "")
    assert template.render([Message("developer", "x")]) == "system"


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
