"""What is seen while a job runs: telemetry, stragglers, hangs, diagnosis."""
