"""Names and rules of the IDs that identify a request across processes."""

from baton.host.redaction import KEY_PREFIX

REQUEST_ID_KEY = "x-request-id"
TRACEPARENT_KEY = "traceparent"
MAX_REQUEST_ID = 128


def clean_request_id(text: str) -> str:
    """Return a caller's request ID if it is valid, else an empty string.

    It is written to logs and metadata, hence at most 128 printable ASCII characters, no spaces, and
    no API key.
    """
    usable = 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable()
    return text if usable and " " not in text and KEY_PREFIX not in text else ""
