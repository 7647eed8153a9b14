"""What a conversation on the terminal makes of its lines."""

import io
import sys
from typing import cast

import pytest
from rich.console import Console

from baton.cli.chat import HELP, Conversation, _converse
from baton.cli.shared.options import ChatCommandOptions


class Recorder:
    """Takes what is asked, and says nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, question: str) -> None:
        self.asked.append(question)

    def clear(self) -> None:
        self.asked.append("(new)")


def test_a_command_that_there_is_not_is_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "hi\n/hepl\n\n/new\n/etc/passwd?\nand /that\n/quit\nnever\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    conversation, printed = Recorder(), io.StringIO()
    _converse(
        cast("Conversation", conversation),
        "m",
        ChatCommandOptions(),
        Console(file=printed, width=200),
    )
    assert conversation.asked == ["hi", "(new)", "/etc/passwd?", "and /that"]
    assert printed.getvalue() == f"Unknown command /hepl. {HELP}\n"
