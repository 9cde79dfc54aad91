"""What earlier runs measured, per recipe, node and part: the source of baselines, in SQLite or PostgreSQL."""
