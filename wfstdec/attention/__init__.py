"""Attention decoders: texts searched token by token, with models and phrases."""
