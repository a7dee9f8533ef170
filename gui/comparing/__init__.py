"""The views Compare and Goal: setups, measurements, searches, results, files saved from them, and Hold.

Invariant: measuring, searching and holding happen in child processes; this room only asks for it and shows the result.
"""
