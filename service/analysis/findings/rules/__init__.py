"""The rules, each a module whose `find` reads `Facts` and returns a `Finding` or ``None``; its name is the rule's."""
