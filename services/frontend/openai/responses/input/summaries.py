"""How a summary of a conversation is asked for, and how it stands in a prompt.

A summary is a turn: the user asks for it, and the assistant answers. So a prompt that ends with the
question begins as the conversation did, and its KV is found; and templates that want users and
assistants to alternate take a prompt that begins with a summary.
"""

from services.frontend.text.chat_template import ChatMessage

QUESTION = (
    "Summarize our conversation so far. Your summary takes its place, so keep all that is needed "
    "to go on: what I want, facts, names, numbers, decisions, results of tools, and what is open. "
    "Answer with the summary alone, and call no tools."
)


def question() -> ChatMessage:
    """Return the message that asks for a summary."""
    return ChatMessage("user", QUESTION)


def summary_turn(summary: str) -> tuple[ChatMessage, ChatMessage]:
    """Return the messages that a summary is in a prompt."""
    return question(), ChatMessage("assistant", summary)
