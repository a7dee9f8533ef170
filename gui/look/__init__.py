"""Colours, sizes, fonts and the style sheet, light and dark.

Invariant: each colour and width is said once, in `tokens`.
"""
