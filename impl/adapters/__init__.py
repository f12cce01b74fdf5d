"""Other people's quantizers, converters and engines, one module each; they know nothing of each other."""
