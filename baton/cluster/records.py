"""The records that discovery reads: instances, model cards and kept models, decoded once per
value."""

from baton.cluster import keys
from baton.cluster.catalog import CardKey
from baton.internal.v1.cluster_pb2 import Instance, KeptModel, ModelCard
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

Record = Instance | ModelCard | KeptModel


class RecordCache:
    """The latest record of each key, so that an unchanged one stays the same object.

    Owned by one Discovery; bounded by the keys that etcd holds.

    Args:
        cluster: the cluster's name.
    """

    def __init__(self, cluster: str) -> None:
        self._instances = keys.instances(cluster)
        self._models = keys.models(cluster)
        self._kept = keys.kept(cluster)
        self._decoded: dict[str, tuple[bytes, Record]] = {}

    def instance_id(self, key: str) -> str | None:
        """Return the ID of the instance whose record is at a key; None: not an instance key."""
        if not key.startswith(self._instances):
            return None
        return key.removeprefix(self._instances)

    def card_key(self, key: str) -> CardKey | None:
        """Return the model's name and variant whose card is at a key; None: not a card key."""
        if not key.startswith(self._models):
            return None
        name, _, variant = key.removeprefix(self._models).rpartition("/")
        return name, variant

    def kept_name(self, key: str) -> str | None:
        """Return the model that the record at a key keeps; None: not such a key."""
        return key.removeprefix(self._kept) if key.startswith(self._kept) else None

    def decode(self, key: str, value: bytes) -> Record | None:
        """Return the record at a key; None: it is of another kind or unreadable."""
        known = self._decoded.get(key)
        if known is not None and known[0] == value:
            return known[1]
        record: Record
        try:
            if (instance_id := self.instance_id(key)) is not None:
                record = keys.decode(Instance, value)
                # The key decides: a deletion carries nothing else.
                record.id = instance_id
            elif self.card_key(key) is not None:
                record = keys.decode(ModelCard, value)
            elif self.kept_name(key) is not None:
                record = _kept(value)
            else:
                return None
        except ValueError as error:
            log.warning("cluster.record.unreadable", etcd_key=key, error=str(error))
            return None
        self._decoded[key] = (value, record)
        return record

    def delete(self, key: str) -> None:
        """Forget a key that etcd no longer holds."""
        self._decoded.pop(key, None)

    def retain(self, held: set[str]) -> None:
        """Forget every key that is not in this set."""
        self._decoded = {key: known for key, known in self._decoded.items() if key in held}


def _kept(value: bytes) -> KeptModel:
    record = keys.decode(KeptModel, value)
    if len({card.tokenizer_digest for card in record.cards}) != 1:
        raise ValueError("not exactly one tokenizer")
    return record
