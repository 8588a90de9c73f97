"""What templates load.

shown.py    the masthead of every page, and figures as people read them
"""
