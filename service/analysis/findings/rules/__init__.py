"""The rules, each a function that reads `Facts` and returns a `Finding` or ``None``; its name is the rule's."""
