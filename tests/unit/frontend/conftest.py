"""Small tokenizers of each kind, and a model around one."""

from collections.abc import Callable

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from baton.internal.v1 import cluster_pb2
from baton.v1 import common_pb2
from services.frontend.models.model import ServedModel
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.chat_template import ChatTemplate
from services.frontend.text.tokenizer import Tokenizer

PIECES = ["Ġthe", "he", "Ġ", "ð", "ŁĺĢ", "Ã©", "ä¸ĸ"]


def byte_level() -> tokenizers.Tokenizer:
    """Bytes, a few words, halves of characters, and added tokens, as Llama 3 and Qwen have them."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {piece: len(vocab) + i for i, piece in enumerate(p for p in PIECES if p not in vocab)}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens(["<think>", "x y", "世界"])
    made.add_special_tokens([AddedToken("<eos>", special=True)])
    return made


def byte_fallback() -> tokenizers.Tokenizer:
    """Words with spaces as ▁, and bytes for all else, as Llama 2 has them."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["▁", "▁the", "he", "é", "▁▁", "世", "\N{REPLACEMENT CHARACTER}"]
    vocab = {word: i for i, word in enumerate(words)}
    made = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True)
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(["<s>", "</s>"])
    return made


def whole_words() -> tokenizers.Tokenizer:
    """Words, with spaces put between them."""
    return tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(40)}, unk_token="w0"))


KINDS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "byte level": byte_level,
    "byte fallback": byte_fallback,
    "whole words": whole_words,
}


@pytest.fixture(scope="session", params=KINDS)
def backend(request: pytest.FixtureRequest) -> tokenizers.Tokenizer:
    """A tokenizer of each kind in turn."""
    return KINDS[request.param]()


@pytest.fixture(scope="session")
def model() -> ServedModel:
    """A byte-level model; token `ord(letter) - 33` is the letter, 0 is `!` and ends sequences."""
    tokenizer = Tokenizer(byte_level(), ChatTemplate(None))
    card = cluster_pb2.ModelCard(
        name="m",
        layout_id=b"L" * 16,
        weights_digest=b"W" * 16,
        block_tokens=16,
        context_tokens=100,
        vocab_tokens=260,
        eos_token_ids=[0],
        features=["logprobs"],
    )
    return ServedModel("m", tokenizer, (card,))


@pytest.fixture(scope="session")
def request_for(model: ServedModel) -> Callable[..., ResolvedRequest]:
    """Makes requests: stop strings, then fields of SamplingParams."""

    def make(*stop: str, n: int = 1, **sampling: object) -> ResolvedRequest:
        fields = {"seed": 1, "max_tokens": 50, **sampling}
        return ResolvedRequest(
            context=common_pb2.RequestContext(request_id="r", model="m"),
            model=model,
            prompt=[40, 41],
            sampling=common_pb2.SamplingParams(**fields),
            stop=stop,
            n=n,
        )

    return make
