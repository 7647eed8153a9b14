"""The fifth pass over a chat completion's body: what it asks of the chat template."""

from collections.abc import Sequence

from services.frontend.openai.request.schema import ChatBody, TokenizeBody
from services.frontend.output.definitions import ToolDefinition
from services.frontend.requests.prompt_fields import template_options
from services.frontend.text.chat_template import TemplateOptions


def read_template(
    body: ChatBody | TokenizeBody, tools: Sequence[ToolDefinition]
) -> TemplateOptions:
    """Return what a body asks of the template; errors as of `template_options`.

    Args:
        body: what was sent.
        tools: that it names.
    """
    return template_options(
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        chat_template_kwargs=body.chat_template_kwargs,
        documents=body.documents,
        reasoning_effort=body.reasoning_effort,
        tools=[tool.definition for tool in tools],
    )
