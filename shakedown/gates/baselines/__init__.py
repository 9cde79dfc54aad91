"""Whether a figure is worse than what these nodes did before; docs/ledger.md has the method and its errors."""
