"""What is under test: the contract, the catalogue of built-ins, and the implementations themselves."""

__version__ = "0.1.0"
