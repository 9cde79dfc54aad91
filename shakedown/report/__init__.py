"""What people and machines read: the same findings and gates as terminal text, JSON, JUnit, Prometheus and HTML."""
