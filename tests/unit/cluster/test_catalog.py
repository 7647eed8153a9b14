"""Which models are in view."""

from baton.cluster.catalog import Catalog
from baton.internal.v1.cluster_pb2 import Instance, KeptModel, ModelCard

LAYOUT = b"L" * 16
KEY = ("tiny", f"{LAYOUT.hex()}.")
CARD = ModelCard(name="tiny", layout_id=LAYOUT)
WORKER = Instance(id="w1", model="tiny", layout_id=LAYOUT)


def test_card_comes_changes_and_goes():
    catalog = Catalog()
    assert catalog.on_put(KEY, CARD)
    assert not catalog.on_put(KEY, CARD)
    assert catalog.on_put(KEY, ModelCard(name="tiny", layout_id=LAYOUT, context_tokens=9))
    assert catalog.on_delete(KEY)
    assert not catalog.on_delete(KEY)
    assert not catalog.cards


def test_card_stays_while_a_live_worker_serves_it():
    catalog = Catalog()
    catalog.on_put(KEY, CARD)
    catalog.on_instance_up(WORKER)
    catalog.on_instance_up(WORKER)
    assert not catalog.on_delete(KEY)
    assert not catalog.on_instance_down(WORKER)
    assert KEY in catalog.cards
    assert catalog.on_instance_down(WORKER)
    assert KEY not in catalog.cards


def test_card_stays_when_its_workers_go_and_etcd_holds_it():
    catalog = Catalog()
    catalog.on_put(KEY, CARD)
    catalog.on_instance_up(WORKER)
    assert not catalog.on_instance_down(WORKER)
    assert KEY in catalog.cards


def test_list_drops_cards_that_etcd_no_longer_holds():
    catalog = Catalog()
    catalog.on_put(KEY, CARD)
    other = ("other", f"{LAYOUT.hex()}.")
    assert catalog.on_list([(other, ModelCard(name="other", layout_id=LAYOUT))])
    assert list(catalog.cards) == [other]
    assert not catalog.on_list([(other, ModelCard(name="other", layout_id=LAYOUT))])


def test_instances_without_a_model_change_nothing():
    catalog = Catalog()
    catalog.on_instance_up(Instance(id="router"))
    assert not catalog.on_instance_down(Instance(id="router"))


def test_card_goes_with_the_last_worker_that_has_its_tokenizer():
    catalog = Catalog()
    digests = (b"A" * 32, b"B" * 32)
    keys = [("tiny", f"{LAYOUT.hex()}.{digest.hex()}") for digest in digests]
    for key, digest in zip(keys, digests, strict=True):
        card = ModelCard(name="tiny", layout_id=LAYOUT, tokenizer_digest=digest)
        assert catalog.on_put(key, card)
        worker = Instance(id="w", model="tiny", layout_id=LAYOUT, tokenizer_digest=digest)
        catalog.on_instance_up(worker)
        assert not catalog.on_delete(key)
    assert list(catalog.cards) == keys
    assert catalog.on_instance_down(
        Instance(id="w", model="tiny", layout_id=LAYOUT, tokenizer_digest=digests[0])
    )
    assert list(catalog.cards) == keys[1:]


def test_a_kept_model_is_in_view_while_no_worker_serves_it():
    catalog = Catalog()
    kept = KeptModel(cards=[ModelCard(name="tiny", layout_id=LAYOUT, context_tokens=9)])
    assert catalog.on_kept("tiny", kept)
    assert list(catalog.cards.values()) == list(kept.cards)
    catalog.on_put(KEY, CARD)
    catalog.on_instance_up(WORKER)
    assert list(catalog.cards.values()) == [CARD], "a live card hides what is kept"
    catalog.on_delete(KEY)
    assert catalog.on_instance_down(WORKER)
    assert list(catalog.cards.values()) == list(kept.cards)
    assert not catalog.on_list([], {"tiny": kept})
    assert catalog.on_kept("tiny", None)
    assert not catalog.cards
    assert not catalog.kept


def test_a_list_without_a_kept_model_drops_it():
    catalog = Catalog()
    catalog.on_kept("tiny", KeptModel(cards=[CARD]))
    assert catalog.on_list([(KEY, CARD)]), "it is no longer kept"
    assert catalog.on_list([])
    assert not catalog.cards
