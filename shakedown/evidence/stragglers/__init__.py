"""Stragglers: nodes whose ranks need longer than others for the same work, while a job runs.

A slow rank makes all others wait, so the time of an iteration is the same everywhere. What tells is each rank's own
time, apart from waiting.
"""
