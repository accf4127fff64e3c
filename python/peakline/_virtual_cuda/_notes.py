"""Sentences about what a virtual run did otherwise than a real one would."""

from __future__ import annotations


class Notes:
    """Each sentence once, in the order of their first time."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    def add(self, sentence: str) -> None:
        self._sentences.setdefault(sentence)

    def sentences(self) -> list[str]:
        return list(self._sentences)
