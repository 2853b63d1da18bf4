"""Speculative decoding on GGUF models: same answers, fewer slow passes."""

__version__ = "0.1.0"
