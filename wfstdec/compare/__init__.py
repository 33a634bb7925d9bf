"""Searches side by side on one's own data: WER, speed, search errors, memory."""
