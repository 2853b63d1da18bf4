"""Conversations: a model's chat template, and its text as tokens."""
