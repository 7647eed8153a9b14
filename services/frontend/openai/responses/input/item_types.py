"""Types of input items: which are taken, and why others are not."""

from baton.errors import BatonError
from services.frontend.requests.refusals import unsupported

MESSAGE, REASONING, COMPACTION = "message", "reasoning", "compaction"
CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")
TAKEN = (MESSAGE, REASONING, *CALLS, *OUTPUTS, COMPACTION)
KINDS = f"{', '.join(TAKEN[:-1])} or {TAKEN[-1]}"
_SERVERS = (
    "its tool runs on a server, and cannot run here; leave it out, or send what it found as a "
    "message"
)
_CLIENTS = "its tool cannot be offered here; send function_call or custom_tool_call"
_APPROVED = "tools of MCP servers cannot run here; leave it out"
NOT_TAKEN = {
    "item_reference": "only stored items have ids (conversations.enabled); send the item itself",
    "compaction_trigger": "call /v1/responses/compact with the items before it",
    "configuration_update": "send the fields that change with the request",
    "additional_tools": "send all tools as tools",
    **dict.fromkeys(
        (
            "web_search_call",
            "file_search_call",
            "code_interpreter_call",
            "image_generation_call",
            "mcp_call",
            "program",
            "program_output",
        ),
        _SERVERS,
    ),
    **dict.fromkeys(
        (
            "computer_call",
            "computer_call_output",
            "local_shell_call",
            "local_shell_call_output",
            "shell_call",
            "shell_call_output",
            "apply_patch_call",
            "apply_patch_call_output",
            "tool_search_call",
            "tool_search_output",
        ),
        _CLIENTS,
    ),
    **dict.fromkeys(("mcp_list_tools", "mcp_approval_request", "mcp_approval_response"), _APPROVED),
}
"""Types of OpenAI's items that are not, and what to do instead: part of a sentence."""


def not_taken(field: str, kind: str) -> BatonError:
    """Return the error of an item of another type than TAKEN; `field` is its type's."""
    shown = f"{kind[:64]!r}"
    why = NOT_TAKEN.get(kind)
    return unsupported(field, why=f"{shown}; use {KINDS}" if why is None else f"{shown}: {why}")
