"""The digest by which a request is recognized, whatever its id."""

from hashlib import sha256

from baton.kv.keys import token_bytes
from baton.v1 import common_pb2
from services.frontend.requests.request import ResolvedRequest

_DIGEST_BYTES = 16


def digest_of(request: ResolvedRequest) -> bytes:
    """Return the digest of a request's tenant, prompt and parameters, except the seed."""
    context, sampling = request.context, common_pb2.SamplingParams()
    sampling.CopyFrom(request.sampling)
    sampling.ClearField("seed")
    digest = sha256(b"baton.request.1")
    for part in (
        context.tenant.encode(),
        request.model.name.encode(),
        context.adapter.encode(),
        request.adapter_digest,
        request.n.to_bytes(4, "little"),
        sampling.SerializeToString(deterministic=True),
        "\0".join(request.stop).encode(),
        token_bytes(request.prompt),
        *(run.digest for run in request.pictures.runs),
    ):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()[:_DIGEST_BYTES]
