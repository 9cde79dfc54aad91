"""Helpers without knowledge of the domain: text, secrets, files."""
