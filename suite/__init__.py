"""The claims, and what they are measured with."""
