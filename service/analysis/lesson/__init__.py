"""Lessons: what one says, the text file that says it, and the HTML page of one with its recording."""
