"""The search, declaration, validation and identity of components. Plug-ins import the modules of `registry` instead."""
