"""Other people's interfaces, carried out by searches of this package."""
