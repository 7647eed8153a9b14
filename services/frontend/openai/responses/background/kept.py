"""What a frontend stores of a response that it begins, so that another one can continue it."""

from hashlib import sha256

import msgspec

from baton.kv.keys import token_bytes
from services.frontend.openai.responses.encoder import ResponseName
from services.frontend.requests.request import ResolvedRequest


class RunRequest(msgspec.Struct, frozen=True):
    """A request in the background. Seconds are since the Unix epoch."""

    body: str
    """As its client sent it."""
    request_id: str
    key: str
    """ID of the client's API key."""
    created: int
    deadline: float
    model: str
    """The model or adapter that answers."""
    requested: str
    """As of `ResolvedRequest`."""
    seed: int
    digest: str
    """Of all that the output depends on besides seed and parameters."""
    exact: bool = True
    """Whether it continues with the same tokens elsewhere."""
    provided: bool = False
    """Whether it runs at a provider."""


def kept_request(
    body: bytes, key: str, name: ResponseName, deadline: float, resolved: ResolvedRequest
) -> str:
    """Return what is stored of a request, in JSON."""
    kept = RunRequest(
        body.decode(),
        resolved.id,
        key,
        name.created,
        deadline,
        resolved.named,
        resolved.requested,
        resolved.sampling.seed,
        digest_of(resolved),
        exact=resolved.exact_continuation and not resolved.body,
        provided=bool(resolved.body),
    )
    return msgspec.json.encode(kept).decode()


read_kept = msgspec.json.Decoder(RunRequest).decode
"""Returns what `kept_request` was given."""


def digest_of(resolved: ResolvedRequest) -> str:
    """Return a digest of the prompt, the weights and the adapter, or of what a provider gets."""
    found = sha256(token_bytes(resolved.prompt))
    for part in (resolved.model.weights.encode(), resolved.adapter_digest):
        found.update(len(part).to_bytes(4) + part)
    found.update(resolved.body)
    return found.hexdigest()
