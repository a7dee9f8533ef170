"""Beginnings that prompts share, such as a system prompt: their keys and values are computed once.

Prompts are compared in blocks of tokens. A beginning is kept when two prompts have had it, and what begins like it
copies its keys and values and reads the rest. vLLM's prefix caching finds beginnings in this way too
(https://docs.vllm.ai/en/latest/design/prefix_caching.html), but shares their memory, where rows have a copy each here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from service.engine.model.batch_cache import BatchCache

BLOCK_TOKENS: Final = 32
USUAL_ROOM_TOKENS: Final = 4096
MOST_SEEN: Final = 8192  # blocks of recent prompts


class Beginning(NamedTuple):
    """Keys and values of which the first `tokens` columns are those of a prompt."""

    cache: BatchCache
    tokens: int


@dataclass(frozen=True, eq=False)
class _Kept:
    tokens: tuple[int, ...]
    chain: tuple[int, ...]
    cache: BatchCache


class Prefixes:
    """The beginnings of one model's prompts; for one thread at a time.

    Attributes:
        room_tokens: no more are kept; what was not needed for longest goes first.
    """

    def __init__(self, room_tokens: int = USUAL_ROOM_TOKENS) -> None:
        self.room_tokens = room_tokens
        self._seen: OrderedDict[int, int] = OrderedDict()  # how many recent prompts had a block, by its chain
        self._kept: OrderedDict[_Kept, None] = OrderedDict()
        self._by_chain: dict[int, _Kept] = {}

    def find(self, prompt: Sequence[int]) -> Beginning | None:
        """The longest that is kept of this prompt; at least its last token has to be read."""
        chain = _chain(prompt[:-1])
        for count in range(len(chain), 0, -1):
            kept, tokens = self._by_chain.get(chain[count - 1]), count * BLOCK_TOKENS
            if kept is not None and kept.tokens[:tokens] == tuple(prompt[:tokens]):
                self._kept.move_to_end(kept)
                return Beginning(kept.cache, tokens)
        return None

    def note(self, prompt: Sequence[int]) -> None:
        """A request has this prompt."""
        for link in _chain(prompt):
            self._seen[link] = self._seen.pop(link, 0) + 1
        while len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)

    def wanted(self, prompt: Sequence[int]) -> int:
        """How many tokens of its beginning other prompts have had as well; 0 where they are kept, or are too many."""
        chain = _chain(prompt)
        shared = sum(self._seen.get(link, 0) > 1 for link in chain)
        is_kept = shared > 0 and chain[shared - 1] in self._by_chain
        return 0 if is_kept or shared * BLOCK_TOKENS > self.room_tokens else shared * BLOCK_TOKENS

    def keep(self, tokens: Sequence[int], cache: BatchCache) -> None:
        """`cache` holds the keys and values of these tokens, which are some blocks."""
        kept = _Kept(tuple(tokens), tuple(_chain(tokens)), cache)
        for shorter in [each for each in self._kept if kept.chain[: len(each.chain)] == each.chain]:
            self._drop(shorter)
        self._kept[kept] = None
        self._by_chain |= dict.fromkeys(kept.chain, kept)
        while sum(len(each.tokens) for each in self._kept) > self.room_tokens:
            self._drop(next(iter(self._kept)))

    def _drop(self, kept: _Kept) -> None:
        del self._kept[kept]
        for link in kept.chain:
            if self._by_chain.get(link) is kept:
                del self._by_chain[link]


def _chain(tokens: Sequence[int]) -> list[int]:
    """For each whole block a number that stands for it and all before it."""
    chain, last = list[int](), 0
    for end in range(BLOCK_TOKENS, len(tokens) + 1, BLOCK_TOKENS):
        last = hash((last, tuple(tokens[end - BLOCK_TOKENS : end])))
        chain.append(last)
    return chain
