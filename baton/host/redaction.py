"""The patterns of secrets, to keep them out of logs, traces and errors.

API keys of Baton, tokens of Hugging Face, and the parts of signed URLs that anyone could use.
"""

import re

KEY_PREFIX = "sk-baton-"
_KEY = re.compile(r"sk-baton-[A-Za-z0-9_-]{8,}")
_HUB_PREFIX = "hf_"
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{20,}")
_SIGNED = "ignature="
_SIGNATURE = re.compile(
    r"\b(X-Amz-Signature|X-Amz-Security-Token|X-Amz-Credential|Signature|Policy|Key-Pair-Id)"
    r"=[^&\s\"'\\]+"
)


def redact(text: str) -> str:
    """Return a text with `sk-baton-…` in place of each API key, and so on.

    Costs less than 1 µs if there is no secret.
    """
    if KEY_PREFIX in text:
        text = _KEY.sub("sk-baton-…", text)
    if _HUB_PREFIX in text:
        text = _HUB_TOKEN.sub("hf_…", text)
    if _SIGNED in text:
        text = _SIGNATURE.sub(r"\1=…", text)
    return text
