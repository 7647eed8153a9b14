"""The prompts of a text completion's body."""

import msgspec

from baton.errors import invalid_field
from services.frontend.http.json_body import not_json
from services.frontend.requests.request import Prompt, TextPrompt, TokenPrompt

_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(list[str])
_ids = msgspec.json.Decoder(list[int])
_id_lists = msgspec.json.Decoder(list[list[int]])


def read_prompts(raw: msgspec.Raw, n: int, max_outputs: int) -> list[Prompt]:
    """Return the prompts of a body: a string, a list of strings, token ids, or a list of lists of
    token ids.

    Args:
        raw: the field, not decoded yet.
        n: outputs of each prompt.
        max_outputs: of all of them.

    Raises:
        BatonError: it is none of these; prompts times `n` is more than `max_outputs`.
    """
    data = bytes(raw).lstrip()
    inner = data[1:].lstrip()[:1] if data[:1] == b"[" else b""
    try:
        if data in (b"", b"null") or inner == b"]":
            return [TextPrompt("")]
        if inner == b'"':
            texts = _texts.decode(data)
            _check_outputs(len(texts), n, max_outputs)
            return [TextPrompt(text) for text in texts]
        if inner == b"[":
            id_lists = _id_lists.decode(data)
            _check_outputs(len(id_lists), n, max_outputs)
            return [TokenPrompt(ids) for ids in id_lists]
        if inner:
            return [TokenPrompt(_ids.decode(data))]
        return [TextPrompt(_text.decode(data))]
    except msgspec.ValidationError:
        raise invalid_field(
            "prompt", "must be a string, a list of strings, token ids, or lists of token ids"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # its texts were not read before
        raise not_json(error) from None


def _check_outputs(prompts: int, n: int, max_outputs: int) -> None:
    if prompts * max(n, 1) > max_outputs and n <= max_outputs:
        raise invalid_field(
            "prompt", f"{prompts} prompts with n = {n} exceed the limit of {max_outputs} outputs"
        )
