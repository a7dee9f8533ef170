"""Stop texts, found while the text is still being written."""

from __future__ import annotations

from collections.abc import Iterable


class StopFilter:
    """Lets text through up to the first stop text, and never a part of one.

    Text that may yet become a stop text is held back until the next characters decide. Knuth–Morris–Pratt for each
    stop text, so the work grows with the length of the text alone.

    >>> texts = StopFilter(["END"])
    >>> texts.push("one EN"), texts.push("D two"), texts.has_stopped
    ('one ', '', True)
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._matchers = [_Matcher(stop) for stop in stops]
        self._held = ""
        self.has_stopped = False

    def push(self, text: str) -> str:
        """The part of all text so far that is now certain and has not been returned before."""
        if not self._matchers:
            return text
        text = self._held + text
        for position in range(len(self._held), len(text)):
            found = [matcher.length for matcher in self._matchers if matcher.feed(text[position])]
            if found:
                self.has_stopped = True
                self._held = ""
                return text[: position + 1 - max(found)]
        certain = len(text) - max(matcher.matched for matcher in self._matchers)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """What was still held back, as nothing more comes."""
        held, self._held = self._held, ""
        return held


class _Matcher:
    """Follows how much of one stop text the text so far ends with."""

    def __init__(self, stop: str) -> None:
        self.length = len(stop)
        self.matched = 0
        self._stop = stop
        self._fallback = _fallbacks(stop)

    def feed(self, character: str) -> bool:
        """Take the next character; whether the stop text is now complete."""
        matched = self.matched
        while matched and self._stop[matched] != character:
            matched = self._fallback[matched - 1]
        self.matched = matched + (self._stop[matched] == character)
        return self.matched == self.length


def _fallbacks(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that is its suffix too."""
    fallbacks = [0] * len(stop)
    length = 0
    for position in range(1, len(stop)):
        while length and stop[position] != stop[length]:
            length = fallbacks[length - 1]
        length += stop[position] == stop[length]
        fallbacks[position] = length
    return fallbacks
