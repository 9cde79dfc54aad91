"""What knows pyinfra's inside: engine, connections, keys, guard."""
