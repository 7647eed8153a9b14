"""A model on Hugging Face's hub, or on a server with the hub's API.

One request lists the files of a commit with their sizes and digests: the SHA-256 of what Git LFS
has, the digest of Git's blob of the rest. Then every file is requested at that commit. The API is
https://huggingface.co/docs/hub/api; `huggingface_hub` is not used, see docs/adr/0063.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import quote

import msgspec

from baton.models.digests import Digest
from baton.models.errors import PullError
from baton.models.limits import PullLimits
from baton.models.secrets import AccessToken
from baton.models.sources.http import SourceClient
from baton.models.sources.names import parse_hub
from baton.models.sources.source import FileBody, ModelListing, RemoteFile

PUBLIC_HUB = "https://huggingface.co"
_Sha1 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _HubLfs(msgspec.Struct):
    sha256: _Sha256


class _HubFile(msgspec.Struct):
    rfilename: str
    size: int
    blob_id: _Sha1 = msgspec.field(name="blobId")
    lfs: _HubLfs | None = None


class _HubModel(msgspec.Struct):
    """The fields of a model in the hub's API that are used."""

    sha: _Sha1
    siblings: list[_HubFile]


class HubSource:
    """A model repository at one revision.

    Args:
        name: `hf://org/name` or `hf://org/name@revision`, the revision a branch, a tag or a commit;
            without one: `main`.
        endpoint: of the hub.
        limits: of the download.
        token: for models that are not public.

    Raises:
        PullError: the name is none.
    """

    def __init__(
        self, name: str, endpoint: str, limits: PullLimits, token: AccessToken | None
    ) -> None:
        self._repository, self.requested = parse_hub(name)
        self.name = name
        self.identity = f"hf://{self._repository}"
        self._endpoint = endpoint.rstrip("/")
        self._commit = ""
        told = "accept the model's terms there, or use a token that may read it."
        if token is None:
            told = "check the name, and set HF_TOKEN or --token-file to a token that may read it."
        self._client = SourceClient(limits, self._endpoint, token, told)

    def list_files(self, wants: Callable[[str], bool]) -> ModelListing:
        """Return the files at the revision; errors as `ModelSource.list_files`."""
        url = f"{self._endpoint}/api/models/{self._repository}/revision/"
        data = self._client.read(url + quote(self.requested, safe="") + "?blobs=true", self.name)
        if data is None:
            raise PullError(
                f"{self.name} does not exist, or not for this token: check the name and the "
                "revision, and HF_TOKEN or --token-file."
            )
        try:
            model = msgspec.json.decode(data, type=_HubModel)
        except msgspec.DecodeError as error:
            raise PullError(
                f"The answer of {self._endpoint} for {self.name} is not a list of files: {error}."
            ) from error
        self._commit = model.sha
        files = tuple(
            RemoteFile(file.rfilename, file.size, _digest(file))
            for file in model.siblings
            if wants(file.rfilename)
        )
        return ModelListing(self.identity, model.sha, files, self.requested)

    @contextmanager
    def open(self, file: RemoteFile, offset: int) -> Iterator[FileBody]:
        """Request a file of the commit that was listed; errors as `ModelSource.open`."""
        url = f"{self._endpoint}/{self._repository}/resolve/{self._commit}/{quote(file.path)}"
        with self._client.body(url, file.path, offset, file.size) as body:
            yield body

    def close(self) -> None:
        """Close connections."""
        self._client.close()


def _digest(file: _HubFile) -> Digest:
    if file.lfs is not None:
        return Digest("sha256", file.lfs.sha256)
    return Digest("git-sha1", file.blob_id)
