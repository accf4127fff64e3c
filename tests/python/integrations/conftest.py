"""Small trainings for the integrations, on the CPU or a virtual GPU."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No integration opens a connection or a port by itself: whoever tries is told on."""
    tried: list[str] = []

    def refuse(self: socket.socket, address: object, *more: object) -> None:
        if self.family == socket.AF_UNIX:  # inside this machine, and not peakline's
            return None
        tried.append(str(address))
        raise OSError(f"a test without network wanted {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    yield tried
    assert not tried
