"""Sentences about what a virtual run did otherwise than a real one would."""

from __future__ import annotations


class Notes:
    """Each sentence once, in the order of their first time."""

    def __init__(self) -> None:
        self._sentences: dict[str, str] = {}

    def add(self, sentence: str) -> None:
        self.put(sentence, sentence)

    def put(self, subject: str, sentence: str) -> None:
        """The one sentence about `subject`: a later one takes its place."""
        self._sentences[subject] = sentence

    def sentences(self) -> list[str]:
        return list(self._sentences.values())
