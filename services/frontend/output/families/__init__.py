"""How families of models write calls: a table of states each."""
