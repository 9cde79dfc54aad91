"""A TCP proxy that cuts connections in the middle, for pulls that break."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from tests.lab.registry import CUT_PORT, Registry


class CutProxy:
    """Stands before a registry. After `after` bytes in all, the next `times` connections with data are reset.

    With `stall` they stay open instead and carry nothing more: docker itself would wait for ever.
    `cuts` counts them, `passed` the bytes that went to the registry's clients.
    """

    def __init__(self, registry: Registry, *, after: int, times: int = 1, stall: bool = False) -> None:
        host, _, port = registry.address.partition(":")
        self.address = f"{host}:{CUT_PORT}"
        self.after, self.times, self.stall = after, times, stall
        self.cuts = self.passed = 0
        self._upstream = (host, int(port))
        self._listener = socket.create_server((host, CUT_PORT))
        self._lock = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> CutProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._upstream) as server:
            up = threading.Thread(target=_copy, args=(client, server), daemon=True)
            up.start()
            with contextlib.suppress(OSError):
                self._copy_down(server, client)
            # A socket that another thread still reads from is not closed by close(): wake that thread first.
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RD)
            up.join()

    def _copy_down(self, server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(65536):
            if self._must_cut(len(data)):
                if self.stall:
                    self._over.wait()
                # Linger 0: the client gets a reset, as from a switch that lost its state, not an orderly end.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return
            client.sendall(data)

    def _must_cut(self, size: int) -> bool:
        with self._lock:
            if self.cuts < self.times and self.passed + size > self.after:
                self.cuts += 1
                return True
            self.passed += size
            return False


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
