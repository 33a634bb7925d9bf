"""Scripts for GPU machines and for what is compiled for them."""
