"""docs/errors.md, from the table in baton/errors.py."""

import ast
from pathlib import Path

from baton import errors
from baton.errors import Reason
from scripts.docs.table import code, table

HEAD = ("reason", "gRPC", "HTTP", "OpenAI `type`", "OpenAI `code`", "meaning and remedy")
INTRODUCTION = """# Errors

This page lists every error that Baton returns, for authors of clients. An error has a reason, which is the same
over gRPC and HTTP. Match on the reason, or over HTTP on `code`. Do not match on the message.

- gRPC: the reason is the `reason` of ErrorInfo (domain `baton`) in the status's details. The details also have
  BadRequest if a field is invalid, QuotaFailure if a limit is reached, and RetryInfo if a retry may succeed.
- HTTP: the body is OpenAI's error object. `param` names the field; the header `retry-after` states when to
  retry.

After the first event of a stream, the error is the stream's last event. Every response has its request id in
`x-request-id`; the log lines of every process that handled the request have the same id.

"""


def page() -> str:
    """Return the page."""
    texts = _texts()
    rows = [
        (
            code(reason.name),
            code(reason.code.name),
            str(reason.http_status),
            code(reason.openai_type),
            code(reason.openai_code),
            texts[reason.name],
        )
        for reason in Reason
    ]
    return INTRODUCTION + table(HEAD, rows)


def _texts() -> dict[str, str]:
    """Return the text below each reason in the source."""
    module = ast.parse(Path(errors.__file__).read_text())
    (kind,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "Reason")
    texts = {}
    for node, following in zip(kind.body, kind.body[1:], strict=False):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            text = following.value if isinstance(following, ast.Expr) else None
            if not isinstance(text, ast.Constant):
                raise SystemExit(f"baton/errors.py: say below {name} what it means and what to do")
            texts[name] = str(text.value)
    return texts
