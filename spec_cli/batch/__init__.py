"""Many prompts from a file or a pipe, each answered once."""
