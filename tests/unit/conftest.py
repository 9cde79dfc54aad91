"""For the unit tests: ledgers, over SQLite and over a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from shakedown.ledger.store import Ledger, open_ledger
from tests.postgresql import server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """An empty ledger."""
    if request.param == "sqlite":
        return open_ledger(tmp_path / "ledger.sqlite")
    found = open_ledger(request.getfixturevalue("postgresql"))
    engine = create_engine(found.place.url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return found
