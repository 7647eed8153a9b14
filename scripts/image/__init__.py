"""Container images: which wheels go into which layer, bytecode, and bills of materials."""
