"""Small trainings for the integrations, on the CPU or a virtual GPU."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No integration opens a connection or a port by itself: whoever tries is told on."""
    tried: list[str] = []

    def refusing(allowed: Callable[..., None]) -> Callable[..., None]:
        def refuse(self: socket.socket, address: object) -> None:
            if self.family == socket.AF_UNIX:  # between processes of this machine
                return allowed(self, address)
            tried.append(str(address))
            raise OSError(f"a test without network wanted {address}")

        return refuse

    monkeypatch.setattr(socket.socket, "connect", refusing(socket.socket.connect))
    monkeypatch.setattr(socket.socket, "bind", refusing(socket.socket.bind))
    yield tried
    assert not tried
