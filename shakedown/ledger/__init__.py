"""What earlier runs measured, in SQLite or PostgreSQL. SQLAlchemy is an extra and costs 100 ms, so modules load at
first use: `from shakedown import ledger as memory`, `memory.store.open_ledger()`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shakedown.ledger import claims, entry, history, store

__all__ = ["NEEDS_SQLALCHEMY", "LedgerError", "claims", "entry", "history", "store"]

NEEDS_SQLALCHEMY = "the ledger needs SQLAlchemy: pip install 'shakedown[ledger]'"


class LedgerError(ValueError):
    """The ledger cannot be read or written; says which and why, and never a password."""


def __getattr__(name: str) -> Any:
    """Load a module of the ledger. Raise LedgerError where SQLAlchemy is not installed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise LedgerError(NEEDS_SQLALCHEMY) from None
