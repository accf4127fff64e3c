"""One of other people's programs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    name: str
    repo: str
    folder: str  # of the repository, in which it is started
    command: str  # after `peakline estimate`; peakline's own flags come first
    data: dict[str, str] = field(default_factory=dict)  # by place, relative to the folder
    paths: tuple[str, ...] = ()  # of the repository, to import from
    environment: dict[str, str] = field(default_factory=dict)


def mnist(place: str = "../data") -> dict[str, str]:
    return {place: "mnist"}
