"""Kubernetes, where it owns the nodes: read and marked through its own Python client."""
