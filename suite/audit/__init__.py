"""Was this GGUF file made correctly from that checkpoint? Every rule, the measurements behind it, and the cause."""
