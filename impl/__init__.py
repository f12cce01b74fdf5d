"""What is under test: the contract, the catalogue of built-ins, and the implementations themselves."""
