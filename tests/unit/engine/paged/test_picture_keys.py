"""An engine names the blocks of a prompt with pictures as the frontend does, and of its output."""

from dataclasses import replace
from hashlib import sha256

from baton.engine.base import PICTURES, SequenceRequest
from baton.engine.paged.sequence import open_sequence
from baton.internal.v1 import cluster_pb2
from baton.kv.keys import PlaceholderRun, chain_root, prompt_keys, unpack
from baton.sampling import SamplingParams
from services.frontend.generation.block_keys import block_key_chains
from tests.support.engine.info import engine_info

BLOCK = 16
RUNS = (
    PlaceholderRun(5, 20, sha256(b"one").digest()),
    PlaceholderRun(30, 40, sha256(b"other").digest()),
)


def test_engine_and_frontend_name_the_same_blocks() -> None:
    info = engine_info(BLOCK, context_tokens=200, vocab_tokens=1000)
    info = replace(info, features=(*info.features, PICTURES))
    prompt, output = list(range(75)), list(range(100, 145))
    card = cluster_pb2.ModelCard(
        name="m",
        weights_digest=info.weights_digest,
        layout_id=info.layout.layout_id,
        block_tokens=BLOCK,
    )
    (chain,) = block_key_chains(prompt, [card], b"", b"salt", RUNS)
    root = chain_root("m", info.weights_digest, info.layout.layout_id, b"", b"salt")
    request = SequenceRequest(1, root, prompt, SamplingParams(max_tokens=100), runs=RUNS)
    sequence = open_sequence(request, 0, 0.0, info)
    assert sequence.keys == unpack(chain.keys)
    known = prompt_keys(root, [*prompt, *output], BLOCK, RUNS)
    assert len(known.full) == 7
    sequence.tokens += output
    sequence.name_blocks(7, BLOCK)
    assert tuple(sequence.keys) == known.full
    (text,) = block_key_chains(prompt, [card], b"", b"salt")
    assert not set(unpack(text.keys)) & set(known.all)
