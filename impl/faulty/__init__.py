"""Implementations broken on purpose, each in one way and named for it.

They reach the suite as any other implementation does, and the suite has to catch every one: its own tests
hold each against the claim meant for it.
"""
