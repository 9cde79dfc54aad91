"""What people read of findings and gates. Machines read the same objects as JSON: `run.json`, `--format json`."""
