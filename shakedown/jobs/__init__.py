"""Plan, start, supervise and collect a distributed job."""
