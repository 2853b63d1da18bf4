"""`spec-cli chat`: the conversation on a terminal, or line by line without one."""
