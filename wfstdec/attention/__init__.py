"""Attention decoders: a search over texts token by token, with our models and phrases."""
