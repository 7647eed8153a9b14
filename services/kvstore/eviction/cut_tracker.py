"""Which objects serve no cut any more, for layouts with groups. Pure: no I/O, no clock."""

from collections.abc import Callable
from typing import NamedTuple

from baton.kv.cuts import CutRules
from baton.kv.layout import KvGroup
from baton.kv.objects import ObjectId


class ChainLink(NamedTuple):
    """Where a block is in its chain, as its writer says."""

    rules: CutRules
    block: int
    """Its index."""
    previous: bytes
    """Key of the block that it continues; for the first one it means nothing."""


class _ChainBlock:
    """A block of which at least one group has its object."""

    __slots__ = ("block", "children", "cut", "key", "parent", "previous", "run", "serves")

    def __init__(self, key: bytes, link: ChainLink, groups: int) -> None:
        self.key, self.block, self.previous = key, link.block, link.previous
        self.parent: _ChainBlock | None = None
        self.children: dict[bytes, _ChainBlock] = {}
        self.run = [0] * groups
        """By group, consecutive blocks with an object, up to this one; 0: it has none itself."""
        self.serves = [0] * groups
        """By group, what needs its object: usable cuts; for full attention, this block's own cut
        and children that serve any."""
        self.cut = False
        """Whether the cut at its end is usable."""


class _Chains:
    """The known blocks of one layout."""

    def __init__(self, rules: CutRules) -> None:
        self.rules = rules
        self.nodes: dict[bytes, _ChainBlock] = {}
        self.orphans: dict[bytes, dict[bytes, _ChainBlock]] = {}
        """Blocks by the block that they continue, where that one has no object."""


class CutTracker:
    """Follows which objects a tier or several have, and tells when one's last cut is gone.

    An object that never served a cut is not told of: its cut may be on its way. Owned by the store.
    Bounded by the objects. A change costs steps for the blocks whose run of objects it extends or
    ends, and for a cut that becomes usable or not, for the blocks of its windows and chunks. Full
    attention costs a step per block only where a cut is the first, or the last, of its branch.

    Args:
        demote: called with an object that served cuts and serves none now.
        promote: called with one of those that serves a cut again.
    """

    def __init__(
        self, demote: Callable[[ObjectId], None], promote: Callable[[ObjectId], None]
    ) -> None:
        self._demote = demote
        self._promote = promote
        self._layouts: dict[bytes, _Chains] = {}
        self.unneeded: set[ObjectId] = set()
        """Objects that were demoted and are still there."""

    def __len__(self) -> int:
        """Return the number of known blocks."""
        return sum(len(chains.nodes) for chains in self._layouts.values())

    def add(self, object_id: ObjectId, link: ChainLink) -> None:
        """Record that an object can be read; a known one changes nothing, nor does another link."""
        layout_id, key, group, *_ = object_id
        chains = self._layouts.setdefault(layout_id, _Chains(link.rules))
        if group >= len(chains.rules.groups):
            return
        node = chains.nodes.get(key)
        if node is None:
            node = self._insert(chains, key, link)
        self._set(chains, layout_id, node, group, present=True)

    def remove(self, object_id: ObjectId) -> None:
        """Record that an object cannot be read in any tier; unknown ones change nothing."""
        self.unneeded.discard(object_id)
        layout_id, key, group, shard, part = object_id
        chains = self._layouts.get(layout_id)
        if chains is None or shard or part:
            return
        node = chains.nodes.get(key)
        if node is None or group >= len(node.run):
            return
        self._set(chains, layout_id, node, group, present=False)
        if not any(node.run):
            self._forget(chains, node)
            if not chains.nodes:
                del self._layouts[layout_id]

    def group(self, object_id: ObjectId) -> KvGroup | None:
        """Return the group of an object; None: its block is not known."""
        chains = self._layouts.get(object_id.layout_id)
        if chains is None or object_id.key not in chains.nodes:
            return None
        groups = chains.rules.groups
        return groups[object_id.group] if object_id.group < len(groups) else None

    def cut_tokens(self, object_id: ObjectId) -> int:
        """Return the usable cut that ends with an object's block, in tokens; 0: there is none."""
        chains = self._layouts.get(object_id.layout_id)
        node = None if chains is None else chains.nodes.get(object_id.key)
        if chains is None or node is None or not node.cut:
            return 0
        return (node.block + 1) * chains.rules.block_tokens

    def _insert(self, chains: _Chains, key: bytes, link: ChainLink) -> _ChainBlock:
        node = chains.nodes[key] = _ChainBlock(key, link, len(chains.rules.groups))
        for child in chains.orphans.pop(key, {}).values():
            if child.block == node.block + 1:
                child.parent = node
                node.children[child.key] = child
        if link.block:
            parent = chains.nodes.get(link.previous)
            if parent is None:
                chains.orphans.setdefault(link.previous, {})[key] = node
            elif parent.block == link.block - 1:
                node.parent = parent
                parent.children[key] = node
        return node

    def _forget(self, chains: _Chains, node: _ChainBlock) -> None:
        del chains.nodes[node.key]
        if node.parent is not None:
            del node.parent.children[node.key]
        elif (others := chains.orphans.get(node.previous)) is not None:
            others.pop(node.key, None)
            if not others:
                del chains.orphans[node.previous]
        if node.children:
            for child in node.children.values():
                child.parent = None
            chains.orphans[node.key] = node.children

    def _set(
        self, chains: _Chains, layout_id: bytes, node: _ChainBlock, group: int, *, present: bool
    ) -> None:
        if bool(node.run[group]) == present:
            return
        before = node.parent.run[group] if node.parent is not None else 0
        node.run[group] = before + 1 if present else 0
        changed = [node]
        for one in changed:  # grows: shallow blocks come before those that continue them
            run = one.run[group] + 1
            for child in one.children.values():
                if child.run[group]:
                    child.run[group] = run
                    changed.append(child)
        rules = chains.rules
        for one in changed:
            end = (one.block + 1) * rules.block_tokens
            needed = [len(blocks) for blocks in rules.needed(end)]
            usable = all(run >= count for run, count in zip(one.run, needed, strict=True))
            if usable != one.cut:
                one.cut = usable
                for of, count in enumerate(needed):
                    if rules.is_full(of):
                        self._count_full(layout_id, one, of, 1 if usable else -1)
                    else:
                        self._count(layout_id, one, of, count, 1 if usable else -1)

    def _count(self, layout_id: bytes, node: _ChainBlock, group: int, count: int, by: int) -> None:
        """Count a cut at the blocks that it needs, up to its own."""
        at: _ChainBlock | None = node
        for _ in range(count):
            if at is None:
                raise RuntimeError("a usable cut needs blocks that are not known")
            at.serves[group] += by
            self._tell(layout_id, at, group)
            at = at.parent

    def _count_full(self, layout_id: bytes, node: _ChainBlock, group: int, by: int) -> None:
        """Count a cut at its block; each block that begins or ceases to serve, at its parent."""
        at: _ChainBlock | None = node
        while at is not None:
            served = bool(at.serves[group])
            at.serves[group] += by
            self._tell(layout_id, at, group)
            if bool(at.serves[group]) == served:
                return
            at = at.parent

    def _tell(self, layout_id: bytes, node: _ChainBlock, group: int) -> None:
        object_id = ObjectId(layout_id, node.key, group)
        if node.serves[group]:
            if object_id in self.unneeded:
                self.unneeded.remove(object_id)
                self._promote(object_id)
        elif node.run[group]:
            self.unneeded.add(object_id)
            self._demote(object_id)
