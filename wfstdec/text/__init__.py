"""Text in, checked objects out: tokens, lexica, ARPA models, files that hold them."""
