"""What crosses a process, and what every room needs: messages, settings, options, clock, files, pipes, text.

Here: frozen structs that check themselves when they are made, and small helpers without a subject of their own.
Not here: anything that sends messages or computes from them.
Invariant: this room imports no other room, and no library but msgspec and psutil, so every process can afford it.
"""
