"""A trie of wildcard patterns, which finds those that match a name."""

from typing import Generic, TypeVar

from attrs import define, field

from trio_stomp.broker.names._crowd import Crowd
from trio_stomp.broker.names._wildcards import ONE_WORD, Pattern, Token, split

T = TypeVar("T")


@define(eq=False)
class _Node(Generic[T]):
    """A node of the trie: its children, and the items of patterns whose tokens end here.

    Tables are created when needed, because most nodes have one child and nothing else.
    """

    children: "dict[Token, _Node[T]] | None" = None
    here: dict[T, None] | None = None
    rest: dict[str, dict[T, None]] | None = None
    glued: dict[int, dict[str, dict[T, None]]] | None = None

    def is_empty(self) -> bool:
        return not (self.children or self.here or self.rest or self.glued)

    def child(self, token: Token) -> "_Node[T]":
        """Return the child for ``token``, created if needed."""
        if self.children is None:
            self.children = {}
        found = self.children.get(token)
        if found is None:
            found = self.children[token] = _Node()
        return found

    def table(self, pattern: Pattern) -> dict[T, None]:
        """Return the items of a pattern whose tokens end here, in a table created if needed."""
        if pattern.glued is not None:
            if self.glued is None:
                self.glued = {}
            by_text = self.glued.setdefault(len(pattern.glued), {})
            return by_text.setdefault(pattern.glued, {})
        if pattern.rest:
            if self.rest is None:
                self.rest = {}
            return self.rest.setdefault(pattern.rest, {})
        if self.here is None:
            self.here = {}
        return self.here

    def discard(self, pattern: Pattern, item: T) -> None:
        """Remove an item of a pattern, and tables that become empty."""
        if pattern.glued is not None:
            assert self.glued is not None
            by_text = self.glued[len(pattern.glued)]
            _discard(by_text, pattern.glued, item)
            if not by_text:
                del self.glued[len(pattern.glued)]
        elif pattern.rest:
            assert self.rest is not None
            _discard(self.rest, pattern.rest, item)
        else:
            assert self.here is not None
            del self.here[item]


@define(eq=False)
class WildcardTrie(Generic[T]):
    """A trie of patterns by token. Matching walks all branches of a name at once.

    Each ``*`` before other tokens doubles the branches. Patterns with more than one are in a
    ``Crowd``, so a name of n words has about n * n branches at most.
    """

    _root: _Node[T] = field(factory=_Node)
    _crowd: Crowd[T] = field(factory=Crowd)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: Pattern, item: T) -> None:
        """Add ``item``, which must not be there yet."""
        self._count += 1
        if _is_crowded(pattern):
            self._crowd.add(pattern, item)
            return
        node = self._root
        for token in pattern.tokens:
            node = node.child(token)
        node.table(pattern)[item] = None

    def remove(self, pattern: Pattern, item: T) -> None:
        """Remove ``item``, and nodes that become empty."""
        self._count -= 1
        if _is_crowded(pattern):
            self._crowd.remove(pattern, item)
            return
        path = [self._root]
        for token in pattern.tokens:
            path.append(path[-1].child(token))
        path[-1].discard(pattern, item)
        for parent, token, child in zip(
            path[-2::-1], pattern.tokens[::-1], path[:0:-1], strict=True
        ):
            if child.is_empty() and parent.children is not None:
                del parent.children[token]

    def match(self, name: str) -> list[T]:
        """Return the items whose patterns match ``name``, unordered.

        An item with several matching patterns occurs several times.
        """
        return [item for items in self.tables(name) for item in items]

    def tables(self, name: str) -> list[dict[T, None]]:
        """Return the same items in live tables, which change as items come and go."""
        if not self._count:
            return []
        found = self._crowd.tables(name)
        frontier = [self._root]
        offset = 0
        for index, token in enumerate(split(name)):
            is_word = index % 2 == 0
            following: list[_Node[T]] = []
            for node in frontier:
                if node.glued:
                    _match_glued(node.glued, name, offset, found)
                if node.rest and not is_word and token in node.rest:
                    found.append(node.rest[token])
                children = node.children
                if children:
                    if token in children:
                        following.append(children[token])
                    if is_word and token and ONE_WORD in children:
                        following.append(children[ONE_WORD])
            if not following:
                return found
            frontier = following
            offset += len(token)
        for node in frontier:
            if node.here:
                found.append(node.here)
            if node.rest:
                found.extend(node.rest.values())
        return found


def _is_crowded(pattern: Pattern) -> bool:
    """Return whether a pattern has more than one ``*`` before its last token."""
    return pattern.tokens[:-1].count(ONE_WORD) > 1


def _discard(table: dict[str, dict[T, None]], key: str, item: T) -> None:
    del table[key][item]
    if not table[key]:
        del table[key]


def _match_glued(
    glued: dict[int, dict[str, dict[T, None]]], name: str, offset: int, found: list[dict[T, None]]
) -> None:
    for length, by_text in glued.items():
        items = by_text.get(name[offset : offset + length])
        if items:
            found.append(items)


def matches(pattern: Pattern, name: str) -> bool:
    """Return whether a pattern matches a name, by the rules of ``WildcardTrie.match``."""
    tokens = split(name)
    size = len(pattern.tokens)
    if len(tokens) < size:
        return False
    for wanted, token in zip(pattern.tokens, tokens, strict=False):
        if wanted is ONE_WORD:
            if not token:
                return False
        elif wanted != token:
            return False
    if pattern.glued is not None:
        offset = sum(map(len, tokens[:size]))
        return len(tokens) > size and name.startswith(pattern.glued, offset)
    if len(tokens) == size:
        return True
    return bool(pattern.rest) and tokens[size] == pattern.rest
