"""The panels of the window: settings, load, prompts, requests, findings, toolbar, status bar.

Invariant: a panel is given its data and emits what the user wants; it fetches nothing.
"""
