"""Recordings: their file format, their writer and reader, the replay into a `History`, and its export as tables.

Invariant: a reader believes no byte of a file before its checksum, and a file of any content is read in bounded time.
"""
